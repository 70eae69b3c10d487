//! Plan scripts: `tests/data/plan/*.txt` read like a shell session. Lines that start with `$ `
//! are commands, `| ` lines are YAML for the command above, `#` lines are remarks, and everything
//! else is what the command printed. `SNAPSHOTS=overwrite` writes the outputs anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use homeostat::manifest::{ManifestFile, load};
use homeostat::model::action::{Action, HoldReason};
use homeostat::model::budget::{Amount, Totals};
use homeostat::model::desired::Catalog;
use homeostat::model::id::{OverrideId, RunId};
use homeostat::model::kind::{Kind, ObjectRef};
use homeostat::model::observed::{Backoff, Estop, OperatorPause, Takeover};
use homeostat::model::run::{EndReason, Liveness, ProviderAsk, RunOrder, RunStatus};
use homeostat::model::spec::Mode;
use homeostat::model::units::{Money, Span, Tokens};
use homeostat::model::wake::Delivery;
use homeostat::plan::conditions::conditions;
use homeostat::plan::judge::{Approval, Verdict, judge};
use homeostat::plan::render::Report;
use strum::IntoEnumIterator;

use crate::world::{Ending, World};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/plan")
}

fn scripts() -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory()).unwrap();
    let paths = files.map(|entry| entry.unwrap().path());
    let mut scripts: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "txt"))
        .collect();
    scripts.sort();
    scripts
}

#[test]
fn scripts_print_what_they_say() {
    let scripts = scripts();
    assert!(!scripts.is_empty());
    for path in scripts {
        let text = std::fs::read_to_string(&path).unwrap();
        let printed = Session::new().run(&text);
        snapbox::assert_data_eq!(printed, snapbox::Data::read_from(&path, None).raw());
    }
}

#[test]
fn every_hold_reason_and_every_action_stands_in_a_script() {
    let texts = scripts()
        .into_iter()
        .map(|it| std::fs::read_to_string(it).unwrap());
    let all = texts.collect::<Vec<_>>().join("\n");
    let words: BTreeSet<&str> = all.split(|c: char| !c.is_alphanumeric()).collect();
    for reason in HoldReason::iter() {
        let name = reason.to_string();
        assert!(words.contains(name.as_str()), "no script holds for {name}");
    }
}

/// The order that starts the run of a first message.
fn first_order() -> Box<RunOrder> {
    let mut session = Session::new();
    session.command("load base.yaml", "");
    session.command("message solo lead hello", "");
    session.command("apply", "");
    session.command("apply", "");
    let plan = session.world.plan();
    let [Action::StartRun(order)] = plan.actions.as_slice() else {
        panic!("{:?}", plan.actions);
    };
    order.clone()
}

/// The executor chooses nothing: an order names everything that starting the run needs.
#[test]
fn an_order_leaves_no_choice() {
    let order = first_order();
    snapbox::assert_data_eq!(
        format!("{order:#?}\n"),
        snapbox::str![[r#"
RunOrder {
    run: RunId(9386aa96-289b-511a-ba5b-d9b8dd186e70),
    wake: WakeId(86aefac2-e7e5-5298-a1d8-2802ec938e9b),
    reason: UserMessage,
    attempt: 0,
    workspace: Uid(1254fa90-5fdb-5727-91bc-b9014ee8109f),
    workspace_name: "demo",
    agent: Uid(5ac12a2c-96e5-5756-81c3-3b6a096d6717),
    agent_ref: ObjectRef {
        kind: Agent,
        workspace: Some(
            Name(
                "demo",
            ),
        ),
        name: Name(
            "lead",
        ),
    },
    agent_title: "Lead",
    persona: None,
    skills: [],
    space: Uid(c0d110bb-f0e4-5b73-a28d-200e8ebe92d6),
    space_name: "solo",
    roster: [],
    mode: Chat,
    conversation: ConversationId(c0d110bb-f0e4-5b73-a28d-200e8ebe92d6),
    ticket: None,
    adapter_name: "sh",
    adapter: AdapterSpec {
        type: Command,
        command: Some(
            "/bin/agent",
        ),
        args: [],
        env: {},
        prices: [],
        output: Text,
    },
    adapter_generation: 1,
    model: None,
    effort: None,
    cwd: "/spaces/solo/api",
    trees: [
        RunTree {
            id: WorktreeId(421b9dd3-a64a-5e3b-8bf1-f316d367334e),
            repo: Uid(4500149f-ac91-51b0-8ca0-345751114843),
            repo_name: "api",
            path: "/spaces/solo/api",
            branch: "homeostat/solo",
            base: "0123456789abcdef0123456789abcdef01234567",
        },
    ],
    identity: GitIdentity {
        name: "Lead (agent)",
        email: "5ac12a2c-96e5-5756-81c3-3b6a096d6717@agents.homeostat.local",
    },
    silence: 900s,
    reservation: Reservation {
        money: None,
        tokens: None,
    },
    guards: [],
    revision: Revision(
        "rev1",
    ),
    generation: 1,
}

"#]]
    );
}

/// The first identity in line wins: the caller's, the agent's own, the derived one.
#[test]
fn identities_come_in_order() {
    let agent = "apiVersion: homeostat/v1alpha1\nkind: Agent\nmetadata: {name: lead, workspace: \
                 demo}\nspec: {adapter: sh, ";
    let own = "gitIdentity: {name: Own, email: own@example.org}";
    let dispatch = "---\napiVersion: homeostat/v1alpha1\nkind: Dispatch\nmetadata: {name: once, \
                    workspace: demo}\nspec: {agent: lead, space: solo, prompt: Go.";
    let given = "gitIdentity: {name: Given, email: given@example.org}";
    for (yaml, name) in [
        (
            format!("{agent}title: Lead}}\n{dispatch}}}\n"),
            "Lead (agent)",
        ),
        (
            format!("{agent}title: 'A <b> c'}}\n{dispatch}}}\n"),
            "A b c (agent)",
        ),
        (
            format!("{agent}title: Lead, {own}}}\n{dispatch}}}\n"),
            "Own",
        ),
        (
            format!("{agent}title: Lead, {own}}}\n{dispatch}, {given}}}\n"),
            "Given",
        ),
    ] {
        let mut session = Session::new();
        session.command("load base.yaml", &yaml);
        session.command("apply", "");
        session.command("apply", "");
        let plan = session.world.plan();
        let [Action::StartRun(order)] = plan.actions.as_slice() else {
            panic!("{}\n{:?}", session.printed, plan.actions);
        };
        assert_eq!(order.identity.name, name);
    }
}

/// One script under way.
struct Session {
    world: World,
    /// The revision that the prune guard holds.
    held: Option<Catalog>,
    /// What the commands printed.
    printed: String,
}

macro_rules! say {
    ($session:expr, $($arg:tt)*) => {
        writeln!($session.printed, $($arg)*).unwrap()
    };
}

impl Session {
    fn new() -> Self {
        Self {
            world: World::at("2026-11-30T12:00:00Z"),
            held: None,
            printed: String::new(),
        }
    }

    fn run(mut self, text: &str) -> String {
        let kept = |line: &&str| line.starts_with("$ ") || line.starts_with('#') || line.is_empty();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("$ ") else {
                if kept(&line) {
                    say!(self, "{line}");
                }
                continue;
            };
            say!(self, "{line}");
            let mut yaml = String::new();
            while let Some(body) = lines.next_if(|it| it.starts_with('|')) {
                say!(self, "{body}");
                let body = body.strip_prefix("| ").unwrap_or_default();
                writeln!(yaml, "{body}").unwrap();
            }
            self.command(command, &yaml);
        }
        self.printed
    }

    fn command(&mut self, command: &str, yaml: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["load", rest @ ..] => self.load(rest, yaml),
            ["approve"] => {
                let catalog = self.held.take().expect("a revision is held");
                self.judge(catalog, Approval::Given);
            }
            ["plan"] => {
                let plan = self.world.plan();
                let report = Report::of(&self.world.input(), &plan);
                self.printed.push_str(&report.to_string());
            }
            ["plan", "--json"] => {
                let plan = self.world.plan();
                let report = Report::of(&self.world.input(), &plan);
                say!(self, "{}", serde_json::to_string_pretty(&report).unwrap());
            }
            ["apply"] => self.apply(1),
            ["converge"] => self.apply(20),
            ["conditions", object] => self.conditions(object),
            ["advance", span] => {
                let span: Span = span.parse().unwrap();
                self.world.now = self.world.now.checked_add(span.duration()).unwrap();
            }
            ["end-run", agent, how] => self.end_run(agent, how),
            ["fail-upstream", agent, code, rest @ ..] => self.fail_upstream(agent, code, rest),
            ["restart"] => self.world.lose_daemon(),
            ["spend", object, amount] => self.spend(object, amount),
            ["unpriced", agent, model] => {
                let uid = self.world.uid(&named(Kind::Agent, agent));
                self.world
                    .observed
                    .unpriced
                    .insert(uid, (*model).to_owned());
            }
            ["priced"] => self.world.observed.unpriced.clear(),
            ["estimate", agent, amount] => {
                let uid = self.world.uid(&named(Kind::Agent, agent));
                let estimates = &mut self.world.observed.estimates;
                let estimate = estimates.entry((uid, Mode::Chat)).or_default();
                estimate.raise(amount_of(amount));
            }
            ["drain", switch] => self.world.observed.is_draining = *switch == "on",
            ["fail", action, when, code, message @ ..] => {
                self.fail(action, when, code, &message.join(" "));
            }
            ["show"] => self.show(),
            other => self.by_people(other),
        }
    }

    /// What people say and do.
    fn by_people(&mut self, words: &[&str]) {
        match words {
            [
                how @ ("message" | "steer" | "interrupt"),
                space,
                agent,
                text @ ..,
            ] => {
                let (space, agent) = (named(Kind::Space, space), named(Kind::Agent, agent));
                let delivery = how.parse().unwrap_or(Delivery::FollowUp);
                self.world
                    .message(&space, &agent, &text.join(" "), delivery);
            }
            ["take-over", space] => self.take_over(space),
            ["hand-back", space] => {
                let uid = self.world.uid(&named(Kind::Space, space));
                self.world.observed.takeovers.remove(&uid);
            }
            ["deaf", agent] => {
                let uid = self.world.uid(&named(Kind::Agent, agent));
                let live = self.world.observed.live_runs.values_mut();
                live.filter(|run| run.agent == uid)
                    .for_each(|run| run.is_listening = false);
            }
            ["pause", agent, rest @ ..] => self.pause(agent, rest),
            ["resume", agent] => {
                let uid = self.world.uid(&named(Kind::Agent, agent));
                let pauses = &mut self.world.observed.operator_pauses;
                pauses.retain(|pause| pause.target != uid);
            }
            ["estop", "off"] => self.world.observed.estop = None,
            ["estop", by, reason @ ..] => {
                self.world.observed.estop = Some(Estop {
                    by: (*by).to_owned(),
                    reason: (!reason.is_empty()).then(|| reason.join(" ")),
                });
            }
            other => panic!("no such command: {other:?}"),
        }
    }

    /// `load FILE… [without Kind/name…]`: documents of the YAML below replace those of the same
    /// kind and name.
    fn load(&mut self, words: &[&str], yaml: &str) {
        let (files, without) = match words.iter().position(|it| *it == "without") {
            Some(at) => (&words[..at], &words[at + 1..]),
            None => (words, &[][..]),
        };
        let mut documents: Vec<String> = Vec::new();
        let texts = files.iter().map(|file| {
            std::fs::read_to_string(directory().join(file))
                .unwrap_or_else(|e| panic!("{file}: {e}"))
        });
        let own = (!yaml.is_empty()).then(|| yaml.to_owned());
        for text in texts.chain(own) {
            for document in text.split("---\n").filter(|it| !it.trim().is_empty()) {
                documents.retain(|it| title(it) != title(document));
                documents.push(document.to_owned());
            }
        }
        documents.retain(|it| !without.contains(&title(it).as_str()));
        let loaded = load(&[ManifestFile {
            path: "fleet.yaml".to_owned(),
            bytes: documents.join("---\n").into_bytes(),
        }]);
        if !loaded.is_valid() {
            for diagnostic in &loaded.diagnostics {
                say!(self, "{diagnostic:?}");
            }
            return;
        }
        self.judge(loaded.catalog, Approval::None);
    }

    fn judge(&mut self, catalog: Catalog, approval: Approval) {
        let proposed = homeostat::plan::PlanInput {
            catalog: &catalog,
            ..self.world.input()
        };
        match judge(&proposed, approval) {
            Verdict::Accept {
                first_revision_held,
            } => {
                let revision = self.world.accept(catalog, first_revision_held);
                let note = if first_revision_held { " (first)" } else { "" };
                say!(self, "accepted {revision}{note}");
            }
            Verdict::Hold { removed, message } => {
                say!(self, "held, removes {removed}: {message}");
                self.held = Some(catalog);
            }
        }
    }

    /// Plans and applies up to `rounds` times, until nothing is left to do.
    fn apply(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let plan = self.world.plan();
            if plan.actions.is_empty() {
                return;
            }
            let mut report = Report::of(&self.world.input(), &plan);
            report.holds.clear();
            report.wake_at = None;
            self.printed.push_str(&report.to_string());
            for action in &plan.actions {
                self.world.apply(action);
            }
            if rounds > 1 {
                say!(self, "---");
            }
        }
        assert!(rounds == 1, "it does not converge:\n{}", self.printed);
    }

    fn conditions(&mut self, object: &str) {
        let plan = self.world.plan();
        let all = conditions(&self.world.input(), &plan);
        let found = all
            .iter()
            .find(|(reference, _)| reference.to_string() == object);
        let (_, found) = found.unwrap_or_else(|| panic!("no {object}"));
        for it in found {
            say!(
                self,
                "{}={} {} {}",
                it.kind,
                it.status,
                it.reason,
                it.message
            );
        }
    }

    fn live_run(&self, agent: &str) -> RunId {
        let uid = self.world.uid(&named(Kind::Agent, agent));
        let mut runs = self.world.observed.live_runs.values();
        let run = runs.find(|run| run.agent == uid);
        run.unwrap_or_else(|| panic!("{agent} runs nothing")).id
    }

    fn end_run(&mut self, agent: &str, how: &str) {
        let run = self.live_run(agent);
        self.world.end(run, ending(how));
    }

    /// `fail-upstream AGENT CODE [STATUS asks everybody|alone SPAN]`.
    fn fail_upstream(&mut self, agent: &str, code: &str, rest: &[&str]) {
        let run = self.live_run(agent);
        let ask = match rest {
            [] => None,
            [status, "asks", whom, span] => {
                let span: Span = span.parse().unwrap();
                Some(ProviderAsk {
                    until: self.world.now.checked_add(span.duration()).unwrap(),
                    status: status.parse().unwrap(),
                    is_shared: *whom == "everybody",
                })
            }
            other => panic!("[STATUS asks everybody|alone SPAN], not {other:?}"),
        };
        self.world.end_upstream(run, code, ask);
    }

    fn spend(&mut self, object: &str, amount: &str) {
        let objects = self.world.observed.objects.keys();
        let mut objects = objects.filter(|it| it.to_string() == object);
        let reference = objects.next().expect("the budget is known").clone();
        let label = self.world.now.strftime("%Y-%m").to_string();
        let of_the_month = |(it, totals): &(String, Totals)| (*it == label).then_some(*totals);
        let spent = self.world.spent.get(&reference);
        let mut totals = spent.and_then(of_the_month).unwrap_or_default();
        match amount_of(amount) {
            Amount::Money(money) => totals.money = money,
            Amount::Tokens(tokens) => totals.tokens = tokens,
        }
        self.world.spent.insert(reference, (label, totals));
    }

    fn pause(&mut self, agent: &str, rest: &[&str]) {
        let span = match rest {
            ["for", span] => Some(span.parse::<Span>().unwrap()),
            [] => None,
            other => panic!("pause AGENT [for SPAN], not {other:?}"),
        };
        let until = span.map(|span| self.world.now.checked_add(span.duration()).unwrap());
        let pause = OperatorPause {
            id: OverrideId::derived(&[agent]),
            target: self.world.uid(&named(Kind::Agent, agent)),
            by: "ada".to_owned(),
            reason: Some("to look at it".to_owned()),
            since: self.world.now,
            until,
        };
        self.world.observed.operator_pauses.push(pause);
    }

    fn take_over(&mut self, space: &str) {
        let takeover = Takeover {
            id: OverrideId::derived(&[space]),
            space: self.world.uid(&named(Kind::Space, space)),
            by: "ada".to_owned(),
            reason: Some("to finish it by hand".to_owned()),
            since: self.world.now,
        };
        self.world
            .observed
            .takeovers
            .insert(takeover.space, takeover);
    }

    /// Makes every planned action of that name fail.
    fn fail(&mut self, name: &str, when: &str, code: &str, message: &str) {
        let plan = self.world.plan();
        let names = |action: &&Action| <&'static str>::from(*action) == name;
        let failing: Vec<&Action> = plan.actions.iter().filter(names).collect();
        assert!(!failing.is_empty(), "no {name} is planned");
        for action in failing {
            let span = (when != "terminal").then(|| when.parse::<Span>().unwrap());
            let at = span.map(|span| self.world.now.checked_add(span.duration()).unwrap());
            let backoff = Backoff {
                failures: 1,
                not_before: at,
                generation: action.generation(),
                code: code.to_owned(),
                message: message.to_owned(),
            };
            self.world.observed.backoffs.insert(action.key(), backoff);
        }
    }

    fn show(&mut self) {
        let observed = self.world.observed.clone();
        let name = |uid| {
            let mut objects = observed.objects.iter();
            let found = objects.find(|(_, state)| state.uid == uid);
            found.map_or_else(|| "gone".to_owned(), |(it, _)| it.to_string())
        };
        for run in observed.live_runs.values() {
            let stop = run
                .stop_requested
                .map_or_else(String::new, |it| format!(" stopping: {it}"));
            say!(self, "run {} of {}{stop}", run.id.short(), name(run.agent));
        }
        for queued in &observed.wakes {
            let wake = &queued.wake;
            say!(
                self,
                "wake {} of {}: {:?}",
                wake.reason,
                name(wake.agent),
                wake.prompt
            );
        }
        for (uid, ticket) in &observed.tickets {
            say!(self, "{} {}", name(*uid), ticket.status);
        }
        for tree in observed.worktrees.values() {
            say!(self, "worktree {} on {}", tree.path, tree.branch);
        }
        for (reference, state) in &observed.objects {
            if state.deletion_requested_at.is_some() {
                say!(self, "{reference} is being removed");
            }
        }
    }
}

/// `$1.50`, or a number of tokens.
fn amount_of(text: &str) -> Amount {
    if text.starts_with('$') {
        return text.parse::<Money>().unwrap().into();
    }
    Tokens::new(text.parse().unwrap()).into()
}

/// `Kind/name` of a document.
fn title(document: &str) -> String {
    let value = |key: &str| {
        let mut lines = document.lines();
        let line = lines.find_map(|it| it.split_once(key).map(|(_, rest)| rest));
        line.unwrap_or_default()
            .split([',', '}', ' '])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    format!("{}/{}", value("kind: "), value("name: "))
}

/// The object of the scripts' one workspace.
fn named(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef {
        kind,
        workspace: Some("demo".parse().unwrap()),
        name: name.parse().unwrap(),
    }
}

fn ending(how: &str) -> Ending {
    let failed = (RunStatus::Error, Liveness::Failed);
    let with = |(status, liveness), reason| (status, liveness, reason);
    match how {
        "productive" => (
            RunStatus::Completed,
            Liveness::Productive,
            EndReason::AgentFinished,
        ),
        "completed" => (
            RunStatus::Completed,
            Liveness::Completed,
            EndReason::AgentFinished,
        ),
        "blocked" => (
            RunStatus::Completed,
            Liveness::Blocked,
            EndReason::AgentFinished,
        ),
        "failed" => with(failed, EndReason::AgentFinished),
        "stopped" => with(failed, EndReason::StoppedByHuman),
        "estop" => with(failed, EndReason::Estop),
        "removed" => with(failed, EndReason::Removed),
        "shutdown" => with(failed, EndReason::DaemonShutdown),
        "silence" => (RunStatus::Error, Liveness::Stalled, EndReason::Silence),
        "lost" => (RunStatus::Error, Liveness::Dead, EndReason::DaemonLost),
        other => panic!("no such ending: {other}"),
    }
}
