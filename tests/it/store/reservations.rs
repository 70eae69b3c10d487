//! What is set aside never exceeds what is left, whoever asks at once, whatever is lost, and however
//! late a run says what it used.

use std::collections::BTreeMap;
use std::fs;

use homeostat::model::action::HoldReason;
use homeostat::model::budget::{Amount, BudgetGuard, Meter, Reservation, ScopeKey, Totals};
use homeostat::model::event::{AgentEvent, UsageReport};
use homeostat::model::id::{ConversationId, RunId};
use homeostat::model::process::ProcessIdentity;
use homeostat::model::run::{RunOrder, Usage};
use homeostat::model::spec::BudgetScopeKind;
use homeostat::model::units::{Money, Tokens};
use homeostat::model::wake::Wake;
use homeostat::model::window::Window;
use homeostat::store::{Admission, Closed, Effect, RunEvent, Store};
use homeostat::task::Tracker;
use proptest::prelude::{Strategy, any, prop};
use proptest::prop_oneof;
use proptest::test_runner::{Config, TestRunner};
use strum::IntoEnumIterator;

use super::world::{World, at, close, facts, order, order_without_trees, reference, uid, wake};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// These ask to start at once.
    Admit(Vec<Ask>),
    /// A live run reports usage.
    Report(u8, Used),
    /// A live run ends; with what it used, or nobody knows.
    Close(u8, Option<Used>),
    /// The daemon dies and starts again.
    Reopen,
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    /// Ada's or Bob's.
    is_bob: bool,
    /// Whether it writes the worktree, which one run at a time may.
    has_tree: bool,
    set_aside: Used,
}

/// Cents, and hundreds of tokens.
type Used = (u8, u8);

fn totals((cents, hundreds): Used) -> Totals {
    Totals {
        money: Money::from_cents(i64::from(cents)),
        tokens: Tokens::new(i64::from(hundreds) * 100),
    }
}

fn usage(used: Totals) -> UsageReport {
    UsageReport {
        // Of every kind that counts.
        input_tokens: u64::try_from(used.tokens.count() / 4).unwrap(),
        output_tokens: u64::try_from(used.tokens.count() / 4).unwrap(),
        cached_read_tokens: u64::try_from(used.tokens.count() / 4).unwrap(),
        cached_write_tokens: u64::try_from(used.tokens.count() / 4).unwrap(),
        thought_tokens: 77,
        cost_micros: Some(u32::try_from(used.money.micros()).unwrap()),
    }
}

/// The most of both.
fn most(one: Totals, other: Totals) -> Totals {
    Totals {
        money: one.money.max(other.money),
        tokens: one.tokens.max(other.tokens),
    }
}

/// What a run should count as.
#[derive(Clone, Copy, Debug)]
struct Expected {
    is_bob: bool,
    has_tree: bool,
    set_aside: Totals,
    used: Totals,
}

const CEILING: Totals = Totals {
    money: Money::from_cents(500),
    tokens: Tokens::new(60_000),
};

fn window() -> Window {
    Window {
        label: "all".to_owned(),
        start: at(0),
        end: at(10_000),
    }
}

/// Whether a run is in a scope.
type Holds = fn(&Expected) -> bool;

/// Every scope, by who of the runs is in it.
fn scopes() -> [(ScopeKey, Holds); 6] {
    let of = |kind, name| ScopeKey {
        kind,
        uid: Some(uid(name)),
    };
    let fleet = ScopeKey {
        kind: BudgetScopeKind::Fleet,
        uid: None,
    };
    [
        (of(BudgetScopeKind::Agent, "ada"), |run| !run.is_bob),
        (of(BudgetScopeKind::Agent, "bob"), |run| run.is_bob),
        (of(BudgetScopeKind::Space, "room"), |_run| true),
        (of(BudgetScopeKind::Repo, "app"), |run| run.has_tree),
        (of(BudgetScopeKind::Workspace, "acme"), |_run| true),
        (fleet, |_run| true),
    ]
}

/// Wider scopes have more, so that each is what refuses some day.
fn ceiling(scope: ScopeKey, meter: Meter) -> Amount {
    let count = CEILING.of(meter).count();
    meter.amount(match scope.kind {
        BudgetScopeKind::Repo => count / 2,
        BudgetScopeKind::Agent => count,
        BudgetScopeKind::Space => count * 3 / 2,
        BudgetScopeKind::Workspace => count * 7 / 4,
        BudgetScopeKind::Fleet => count * 13 / 8,
    })
}

struct Bank {
    world: Option<World>,
    live: BTreeMap<RunId, Expected>,
    settled: Vec<(Expected, Totals)>,
    asked: u32,
    events: u64,
}

impl Bank {
    fn store(&self) -> &Store {
        &self.world.as_ref().unwrap().store
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Admit(asks) => self.admit(asks).await,
            Step::Report(which, used) => {
                if let Some(run) = self.pick(*which) {
                    self.report(run, totals(*used)).await;
                }
            }
            Step::Close(which, used) => {
                if let Some(run) = self.pick(*which) {
                    self.close(run, used.map(totals)).await;
                }
            }
            Step::Reopen => {
                // What lies on the disk at this instant, as a crash leaves it: the log unmerged.
                let old = self.world.take().unwrap();
                let dir = tempfile::Builder::new().prefix("store-").tempdir().unwrap();
                for file in fs::read_dir(old.dir.path()).unwrap() {
                    let file = file.unwrap();
                    // What the processes of one database share is not the dead one's to leave.
                    if file.path().extension().is_none_or(|it| it != "db-shm") {
                        fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
                    }
                }
                let store = Store::open(&dir.path().join("homeostat.db")).unwrap();
                self.world = Some(World { store, dir });
            }
        }
    }

    fn pick(&self, which: u8) -> Option<RunId> {
        let count = self.live.len().max(1);
        self.live.keys().nth(usize::from(which) % count).copied()
    }

    async fn admit(&mut self, asks: &[Ask]) {
        let mut orders = Vec::new();
        for ask in asks {
            self.asked += 1;
            let (wake, order) = order_of(*ask, self.asked);
            self.store().record_wake(wake, None).await.unwrap();
            orders.push((*ask, order));
        }
        let tracker = Tracker::new();
        let asking = orders.into_iter().map(|(ask, order)| {
            let store = self.store().clone();
            tracker.spawn("admit", async move {
                let answer = store.admit(&order, facts(20)).await.unwrap();
                (ask, order, answer)
            })
        });
        let asking: Vec<_> = asking.collect();
        let mut refused = Vec::new();
        for answer in asking {
            let (ask, order, answer) = answer.await.unwrap();
            let expected = Expected {
                is_bob: ask.is_bob,
                has_tree: ask.has_tree,
                set_aside: totals(ask.set_aside),
                used: Totals::default(),
            };
            match answer {
                Admission::Admitted => {
                    // It has a process, so that what it does not say is not known to be nothing.
                    let identity = ProcessIdentity {
                        pid: 7,
                        start_time: 1,
                        boot_id: "3f1f6e0a-0000-4000-8000-000000000000".to_owned(),
                    };
                    let stored = self.store().store_identity(order.run, identity, None);
                    assert_eq!(stored.await.unwrap(), Effect::Applied);
                    self.live.insert(order.run, expected);
                }
                Admission::Refused(HoldReason::BudgetExceeded, _) => refused.push(expected),
                Admission::Refused(HoldReason::WorktreeBusy, _) if ask.has_tree => {}
                other => panic!("{other:?}"),
            }
        }
        // Nothing was refused that fits: what was taken meanwhile only grew.
        for run in refused {
            let fits = scopes().into_iter().filter(|(_, holds)| holds(&run));
            let fits = fits.into_iter().all(|(scope, _)| {
                let taken = self.spent(scope).saturating_add(self.reserved(scope));
                Meter::iter().all(|meter| {
                    let total = taken.saturating_add(run.set_aside).of(meter);
                    total.count() <= ceiling(scope, meter).count()
                })
            });
            assert!(!fits, "{run:?} was refused and fits");
        }
    }

    async fn report(&mut self, run: RunId, used: Totals) {
        self.events += 1;
        let event = RunEvent {
            seq: self.events,
            at: at(30),
            event: AgentEvent::Usage {
                model: None,
                usage: usage(used),
            },
        };
        self.store().append_events(run, vec![event]).await.unwrap();
        let expected = self.live.get_mut(&run).unwrap();
        expected.used = expected.used.saturating_add(used);
    }

    async fn close(&mut self, run: RunId, used: Option<Totals>) {
        let expected = self.live.remove(&run).unwrap();
        let mut ending = close(run, 40);
        ending.reply = None;
        ending.usage = used.map_or_else(Usage::default, |used| usage(used).into());
        // No tokens at all is as good as not said.
        let known = used.unwrap_or(expected.set_aside);
        let tokens = match known.tokens {
            Tokens::ZERO => expected.set_aside.tokens,
            tokens => tokens,
        };
        assert_eq!(
            self.store().close_run(ending.clone()).await.unwrap(),
            Closed::Closed
        );
        assert_eq!(
            self.store().close_run(ending).await.unwrap(),
            Closed::AlreadyClosed
        );
        self.settled.push((expected, Totals { tokens, ..known }));
    }

    fn spent(&self, scope: ScopeKey) -> Totals {
        let holds = holds(scope);
        let settled = self.settled.iter().filter(|(run, _)| holds(run));
        settled.fold(Totals::default(), |sum, (_, it)| sum.saturating_add(*it))
    }

    fn reserved(&self, scope: ScopeKey) -> Totals {
        let holds = holds(scope);
        let live = self.live.values().filter(|run| holds(run));
        live.fold(Totals::default(), |sum, run| {
            sum.saturating_add(most(run.set_aside, run.used))
        })
    }

    /// What runs of the scope used beyond what was set aside for them: the only way past a ceiling.
    fn beyond(&self, scope: ScopeKey, meter: Meter) -> i64 {
        let holds = holds(scope);
        let live = self.live.values().map(|run| (run, run.used));
        let settled = self.settled.iter().map(|(run, used)| (run, *used));
        let over = |(run, used): (&Expected, Totals)| {
            (used.of(meter).count() - run.set_aside.of(meter).count()).max(0)
        };
        live.chain(settled)
            .filter(|(run, _)| holds(run))
            .map(over)
            .sum()
    }

    async fn check(&self) {
        for (scope, _) in scopes() {
            let spent = self.store().spend(scope, &window()).await.unwrap().spent;
            let reserved = self.store().reserved(scope).await.unwrap();
            assert_eq!(spent, self.spent(scope), "{scope}");
            assert_eq!(reserved, self.reserved(scope), "{scope}");
            for meter in Meter::iter() {
                let taken = spent.of(meter).count() + reserved.of(meter).count();
                let limit = ceiling(scope, meter).count() + self.beyond(scope, meter);
                assert!(taken <= limit, "{scope}: {taken} of {limit} {meter}");
            }
        }
    }
}

fn holds(scope: ScopeKey) -> Holds {
    let found = scopes().into_iter().find(|(it, _)| *it == scope);
    found.unwrap().1
}

/// A run in a conversation of its own, gated by every budget over it in both meters.
fn order_of(ask: Ask, number: u32) -> (Wake, RunOrder) {
    let name = format!("ask {number}");
    let mut wake = wake(&name);
    wake.conversation = ConversationId::derived(&[&name]);
    if ask.is_bob {
        wake.agent = uid("bob");
    }
    let order = if ask.has_tree {
        order(&wake)
    } else {
        order_without_trees(&wake)
    };
    let set_aside = totals(ask.set_aside);
    let expected = Expected {
        is_bob: ask.is_bob,
        has_tree: ask.has_tree,
        set_aside,
        used: Totals::default(),
    };
    let over = scopes().into_iter().filter(|(_, holds)| holds(&expected));
    let guards = over.flat_map(|(scope, _)| {
        Meter::iter().map(move |meter| BudgetGuard {
            budget: reference("BudgetPolicy/acme/cap"),
            scope,
            window: window(),
            ceiling: ceiling(scope, meter),
            stops: false,
        })
    });
    let guards = guards.collect();
    let reservation = Reservation {
        money: Some(set_aside.money),
        tokens: Some(set_aside.tokens),
    };
    let order = RunOrder {
        reservation,
        guards,
        ..order
    };
    (wake, order)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let used = || (0..200_u8, 0..200_u8);
    let ask = (any::<bool>(), prop::bool::weighted(0.3), used()).prop_map(
        |(is_bob, has_tree, set_aside)| Ask {
            is_bob,
            has_tree,
            set_aside,
        },
    );
    let step = prop_oneof![
        4 => prop::collection::vec(ask, 1..6).prop_map(Step::Admit),
        3 => (any::<u8>(), used()).prop_map(|(run, used)| Step::Report(run, used)),
        3 => (any::<u8>(), prop::option::weighted(0.7, used()))
            .prop_map(|(run, used)| Step::Close(run, used)),
        1 => proptest::strategy::Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..24)
}

#[test]
fn what_is_set_aside_fits_in_what_is_left() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let all = Config::default();
    let config = Config {
        cases: all.cases / 8,
        failure_persistence: None,
        ..all
    };
    let ran = TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(async {
            let mut bank = Bank {
                world: Some(World::new().await),
                live: BTreeMap::new(),
                settled: Vec::new(),
                asked: 0,
                events: 0,
            };
            for step in &steps {
                bank.step(step).await;
                bank.check().await;
            }
        });
        Ok(())
    });
    ran.unwrap();
}
