//! Random fleets: what a random revision declares, as small numbers, and the catalog of it.

use std::collections::BTreeMap;
use std::fmt::Debug;

use homeostat::model::desired::{Catalog, Objects, reference_of};
use homeostat::model::kind::{Kind, Metadata, ObjectRef, Origin, Resource};
use homeostat::model::spec::{
    AdapterSpec, AdapterType, AgentBudget, AgentSpec, BudgetPolicySpec, BudgetScope,
    BudgetScopeKind, Concurrency, DispatchSpec, Enforcement, FirstRevision, FleetSpec, Lifecycle,
    Mode, OutputFormat, Overlap, Priority, RepoSpec, ScheduleSpec, SpaceSpec, TicketSpec,
    WorkspaceSpec,
};
use homeostat::model::units::{Money, Name, Tokens};
use proptest::prelude::{Strategy, any, prop};

/// Objects of each kind.
const COUNT: usize = 3;

/// What a random revision declares, as small numbers.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Caps of fleet, workspace and repo; zero is none.
    caps: [u32; 3],
    /// Whether run-once objects of a first revision are held.
    pub(crate) holds_first: bool,
    /// The workspace's ceiling in two dollars; an even one pauses.
    ceiling: u8,
    /// Which repos exist.
    repos: [bool; COUNT],
    /// Each agent: absent, or its lifecycle and its budget in dollars.
    agents: [u8; COUNT],
    /// Each space: absent, or how many of the agents serve it and which repos it allows.
    spaces: [(u8, u8); COUNT],
    /// Each ticket: absent, or its assignee and space.
    tickets: [(u8, u8); COUNT],
    /// Each dispatch: absent, or its agent and space; a prompt's number makes generations.
    dispatches: [(u8, u8, u8); COUNT],
}

pub(crate) fn shapes() -> impl Strategy<Value = Shape> {
    (
        prop::array::uniform3(0..3_u32),
        any::<bool>(),
        0..10_u8,
        prop::array::uniform3(prop::bool::weighted(0.8)),
        prop::array::uniform3(0..12_u8),
        prop::array::uniform3((0..5_u8, 0..10_u8)),
        prop::array::uniform3((0..5_u8, 0..4_u8)),
        prop::array::uniform3((0..5_u8, 0..4_u8, 0..3_u8)),
    )
        .prop_map(
            |(caps, holds_first, ceiling, repos, agents, spaces, tickets, dispatches)| Shape {
                caps,
                holds_first,
                ceiling,
                repos,
                agents,
                spaces,
                tickets,
                dispatches,
            },
        )
}

fn name(stem: &str, number: usize) -> Name {
    format!("{stem}{number}").parse().unwrap()
}

fn put<S: Debug>(objects: &mut Objects<S>, kind: Kind, name: Name, spec: S) {
    let is_placed = !matches!(kind, Kind::Fleet | Kind::Workspace | Kind::Adapter);
    let metadata = Metadata {
        name,
        workspace: is_placed.then(|| "demo".parse().unwrap()),
        uid: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    };
    let reference = reference_of(kind, &metadata);
    let spec_hash = format!("{spec:?}");
    let origin = Origin {
        path: "fleet.yaml".to_owned(),
        line: 1,
    };
    let resource = Resource {
        metadata,
        spec,
        spec_hash,
        origin,
    };
    objects.insert(reference, resource);
}

/// A catalog whose references hold, as validation guarantees.
pub(crate) fn catalog_of(shape: &Shape) -> Catalog {
    let mut catalog = Catalog::default();
    let [fleet, per_workspace, per_repo] = shape.caps;
    let mut fleets = Objects::new();
    let spec = FleetSpec {
        concurrency: Concurrency {
            fleet,
            per_workspace,
            per_repo,
        },
        first_revision: if shape.holds_first {
            FirstRevision::Hold
        } else {
            FirstRevision::Run
        },
        ..FleetSpec::default()
    };
    put(&mut fleets, Kind::Fleet, name("fleet", 0), spec);
    catalog.fleet = fleets.into_values().next();
    let repos = (0..COUNT).filter(|it| shape.repos[*it]);
    let repos: Vec<Name> = repos.map(|it| name("repo", it)).collect();
    let workspace = WorkspaceSpec {
        display_name: None,
        owner: None,
        repos: repos.clone(),
    };
    let demo = "demo".parse().unwrap();
    put(&mut catalog.workspaces, Kind::Workspace, demo, workspace);
    for repo in &repos {
        let spec = RepoSpec {
            source: format!("/src/{repo}"),
            default_branch: None,
        };
        put(&mut catalog.repos, Kind::Repo, repo.clone(), spec);
    }
    let adapter = AdapterSpec {
        prices: Vec::new(),
        r#type: AdapterType::Command,
        command: Some("/bin/agent".to_owned()),
        args: Vec::new(),
        env: BTreeMap::new(),
        output: OutputFormat::Text,
    };
    put(&mut catalog.adapters, Kind::Adapter, name("sh", 0), adapter);
    put_agents(&mut catalog, shape);
    put_spaces(&mut catalog, shape, &repos);
    put_work(&mut catalog, shape);
    catalog
}

fn put_agents(catalog: &mut Catalog, shape: &Shape) {
    for (number, code) in shape
        .agents
        .iter()
        .enumerate()
        .filter(|(_, code)| **code > 0)
    {
        let spec = AgentSpec {
            model: None,
            effort: None,
            title: format!("Agent {number}"),
            role: None,
            persona: None,
            skills: Vec::new(),
            adapter: name("sh", 0),
            budget: (*code % 4 == 3).then(|| AgentBudget {
                monthly: Money::from_cents(i64::from(*code) * 100),
            }),
            budget_policy: None,
            silence_timeout: None,
            concurrency: u32::from(*code % 3) + 1,
            lifecycle: match *code {
                1 => Some(Lifecycle::Archived),
                2 => Some(Lifecycle::Paused),
                3 => Some(Lifecycle::Active),
                _ => None,
            },
            git_identity: None,
        };
        put(
            &mut catalog.agents,
            Kind::Agent,
            name("agent", number),
            spec,
        );
    }
    let policy = BudgetPolicySpec {
        scope: BudgetScope {
            kind: BudgetScopeKind::Workspace,
            name: Some("demo".parse().unwrap()),
        },
        monthly: Some(Money::from_cents(i64::from(shape.ceiling) * 200)),
        tokens: (shape.ceiling % 4 == 3).then(|| Tokens::new(i64::from(shape.ceiling) * 100_000)),
        soft_threshold_percent: 80,
        enforcement: match shape.ceiling % 3 {
            0 => Enforcement::PostHoc,
            1 => Enforcement::Gate,
            _ => Enforcement::GateAndStop,
        },
        reserve: (shape.ceiling > 4).then_some(Money::from_cents(150)),
        hard_stop: shape.ceiling.is_multiple_of(2),
        zone: None,
    };
    put(
        &mut catalog.budget_policies,
        Kind::BudgetPolicy,
        name("cap", 0),
        policy,
    );
}

fn put_spaces(catalog: &mut Catalog, shape: &Shape, repos: &[Name]) {
    let agents: Vec<Name> = catalog.agents.keys().map(|it| it.name.clone()).collect();
    for (number, (serving, allowed)) in shape.spaces.iter().enumerate() {
        if *serving == 0 {
            continue;
        }
        let serving = usize::from(*serving) - 1;
        let allowed = usize::from(*allowed);
        let spec = SpaceSpec {
            title: None,
            agents: agents.iter().take(serving).cloned().collect(),
            repos: (allowed > 3).then(|| repos.iter().skip(allowed % 4).cloned().collect()),
            base_branch: None,
            mode: Mode::default(),
        };
        put(
            &mut catalog.spaces,
            Kind::Space,
            name("space", number),
            spec,
        );
    }
}

fn put_work(catalog: &mut Catalog, shape: &Shape) {
    let nth = |references: Vec<&ObjectRef>, nth: u8| {
        let nth = usize::from(nth).checked_rem(references.len())?;
        Some(references[nth].name.clone())
    };
    let agent = |catalog: &Catalog, number| nth(catalog.agents.keys().collect(), number);
    let space = |catalog: &Catalog, number| nth(catalog.spaces.keys().collect(), number);
    for (number, (who, place)) in shape.tickets.iter().enumerate().filter(|(_, it)| it.0 > 0) {
        let Some(place) = space(catalog, *place) else {
            continue;
        };
        let spec = TicketSpec {
            title: format!("Ticket {number}"),
            description: None,
            priority: if number == 0 {
                Priority::High
            } else {
                Priority::None
            },
            labels: Vec::new(),
            assignee: (*who > 1).then(|| agent(catalog, *who)).flatten(),
            requested_by: None,
            space: place,
            wake_on_assign: *who != 2,
        };
        put(
            &mut catalog.tickets,
            Kind::Ticket,
            name("ticket", number),
            spec,
        );
    }
    for (number, (who, place, prompt)) in shape.dispatches.iter().enumerate() {
        let (Some(who), Some(place), true) =
            (agent(catalog, *who), space(catalog, *place), *who > 1)
        else {
            continue;
        };
        let ticket = name("ticket", number);
        let is_there = catalog.tickets.keys().any(|it| it.name == ticket);
        let spec = DispatchSpec {
            agent: who.clone(),
            space: place.clone(),
            conversation: (*prompt == 1).then(|| name("side", number)),
            ticket: (*prompt == 2 && is_there).then_some(ticket),
            prompt: format!("Go {prompt}."),
            requested_by: None,
            env: BTreeMap::new(),
            git_identity: None,
        };
        put(
            &mut catalog.dispatches,
            Kind::Dispatch,
            name("dispatch", number),
            spec,
        );
        let schedule = ScheduleSpec {
            agent: who,
            space: place,
            prompt: "Look around.".to_owned(),
            cron: format!("{number} */6 * * *"),
            zone: None,
            overlap: if number == 0 {
                Overlap::Skip
            } else {
                Overlap::QueueOne
            },
        };
        put(
            &mut catalog.schedules,
            Kind::Schedule,
            name("schedule", number),
            schedule,
        );
    }
}
