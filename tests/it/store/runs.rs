//! A run's row from admission to close: process, prompt, events, money, reply, lineage.

use homeostat::model::budget::{Reservation, ScopeKey, Totals};
use homeostat::model::event::{AgentEvent, DomainEventType, UsageReport};
use homeostat::model::id::{ConversationId, MessageId, RunId};
use homeostat::model::process::ProcessIdentity;
use homeostat::model::run::{EndReason, ErrorFamily, Liveness, RunOrder, RunStatus, Usage};
use homeostat::model::spec::{BudgetScopeKind, Mode};
use homeostat::model::units::{Money, Tokens};
use homeostat::model::wake::WakeState;
use homeostat::model::window::Window;
use homeostat::store::{
    Admission, Author, Closed, Effect, NewMessage, Pricing, RunEvent, RunFilter, ScopeSpend,
    StoreError, TreeResult,
};

use super::world::{World, assert_same, at, close, dump, facts, order, uid, wake, worktree};

async fn started(name: &str) -> (World, RunId) {
    let world = World::new().await;
    world.store.record_wake(wake(name), None).await.unwrap();
    let order = order(&wake(name));
    let admission = world.store.admit(&order, facts(20)).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    (world, order.run)
}

fn identity(pid: u32) -> ProcessIdentity {
    ProcessIdentity {
        pid,
        start_time: 12_345,
        boot_id: "3f1f6e0a-0000-4000-8000-000000000000".to_owned(),
    }
}

fn usage(seq: u64, cost: u32) -> RunEvent {
    RunEvent {
        seq,
        at: at(20 + i64::try_from(seq).unwrap()),
        event: AgentEvent::Usage {
            model: None,
            usage: UsageReport {
                input_tokens: 3,
                cost_micros: Some(cost),
                ..UsageReport::default()
            },
        },
    }
}

fn month() -> Window {
    Window {
        label: "all".to_owned(),
        start: at(0),
        end: at(1_000),
    }
}

fn scope(kind: BudgetScopeKind, name: &str) -> ScopeKey {
    ScopeKey {
        kind,
        uid: Some(uid(name)),
    }
}

#[tokio::test]
async fn a_run_is_one_process_with_one_prompt() {
    let (world, run) = started("a").await;
    let store = &world.store;
    assert_eq!(store.process_of(run).await.unwrap().unwrap().identity, None);
    let store_identity = async |pid| {
        let group = Some("/sys/fs/cgroup/x".to_owned());
        store
            .store_identity(run, identity(pid), group)
            .await
            .unwrap()
    };
    assert_eq!(store_identity(7).await, Effect::Applied);
    assert_eq!(store_identity(7).await, Effect::Unchanged);
    assert!(matches!(store_identity(8).await, Effect::Stale(_)));

    let prompt = async |text: &str| store.store_prompt(run, text.to_owned()).await.unwrap();
    assert_eq!(prompt("abc").await, Effect::Applied);
    assert_eq!(prompt("abc").await, Effect::Unchanged);
    assert!(matches!(prompt("other").await, Effect::Stale(_)));
    let stored = store.run_prompt(run).await.unwrap().unwrap();
    assert_eq!(stored.prompt, "abc");
    assert_eq!(
        stored.sha256,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );

    assert_eq!(
        store.mark_running(run, at(21)).await.unwrap(),
        Effect::Applied
    );
    assert_eq!(
        store.mark_running(run, at(22)).await.unwrap(),
        Effect::Unchanged
    );
    let live = store.live_processes().await.unwrap();
    assert_eq!(live.len(), 1);
    assert_eq!(live[0].identity, Some(identity(7)));
    assert_eq!(live[0].cgroup.as_deref(), Some("/sys/fs/cgroup/x"));
    assert_eq!(live[0].status, RunStatus::Running);

    assert_eq!(
        store.close_run(close(run, 30)).await.unwrap(),
        Closed::Closed
    );
    assert!(store.live_processes().await.unwrap().is_empty());
    assert!(matches!(store_identity(7).await, Effect::Stale(_)));
    assert!(matches!(
        store.mark_running(run, at(31)).await.unwrap(),
        Effect::Stale(_)
    ));
}

#[tokio::test]
async fn events_are_stored_once_in_their_order() {
    let (world, run) = started("a").await;
    let store = &world.store;
    let event = |seq: u64| RunEvent {
        seq,
        at: at(20 + i64::try_from(seq).unwrap()),
        event: AgentEvent::Text {
            text: format!("line {seq}"),
        },
    };
    let first: Vec<_> = (0..10).map(event).collect();
    assert_eq!(store.append_events(run, first.clone()).await.unwrap(), 10);
    assert_eq!(store.append_events(run, first).await.unwrap(), 0);
    assert_eq!(
        store
            .append_events(run, vec![event(9), event(10)])
            .await
            .unwrap(),
        1
    );
    let all = store.run_events(run).await.unwrap();
    assert_eq!(all, (0..=10).map(event).collect::<Vec<_>>());
    let page = store.events_after(run, Some(3), 2).await.unwrap();
    assert_eq!(page, [event(4), event(5)]);
    let view = store.run(&run.to_string()).await.unwrap().unwrap();
    assert_eq!(view.first_output_at, Some(at(20)));
    assert_eq!(view.last_output_at, Some(at(30)));
    let unknown = store
        .append_events(RunId::derived(&["none"]), vec![event(0)])
        .await;
    assert!(
        matches!(unknown, Err(StoreError::Write { .. })),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn closing_is_one_step_and_happens_once() {
    let (world, run) = started("a").await;
    let store = &world.store;
    let identified = store.store_identity(run, identity(7), None).await.unwrap();
    assert_eq!(identified, Effect::Applied);
    let mut ending = close(run, 30);
    ending.trees = vec![TreeResult {
        worktree: worktree().id,
        head: Some("beef".to_owned()),
        is_dirty: Some(true),
        dirt: Some("f00d".to_owned()),
    }];
    assert_eq!(
        store.close_run(ending.clone()).await.unwrap(),
        Closed::Closed
    );
    let before = dump(&world.path());
    let mut other = ending;
    other.status = RunStatus::Error;
    other.usage.cost_micros = Some(9_999_999);
    assert_eq!(store.close_run(other).await.unwrap(), Closed::AlreadyClosed);
    assert_same(&before, &dump(&world.path()), "again");

    let view = store.run(&run.to_string()).await.unwrap().unwrap();
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(view.liveness, Some(Liveness::Completed));
    assert_eq!(view.pricing, Some(Pricing::Priced));
    assert_eq!(view.usage, close(run, 30).usage);
    assert_eq!(view.model.as_deref(), Some("small"));
    assert_eq!(view.trees[0].head.as_deref(), Some("beef"));
    assert_eq!(view.trees[0].is_dirty, Some(true));
    assert!(!view.is_settled);
    assert_eq!(store.transcript(run).await.unwrap().as_deref(), Some("[]"));
    let record = store.wake(wake("a").id).await.unwrap().unwrap();
    assert_eq!(record.state, WakeState::Finished);
    let reply = store
        .message(MessageId::reply_of(run))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reply.run, Some(run));
    assert_eq!(
        reply.author,
        Author::Agent {
            uid: uid("ada"),
            name: "ada".to_owned()
        }
    );
    let events: Vec<_> = store.outbox_after(0, 100).await.unwrap();
    let last: Vec<_> = events.iter().rev().take(2).map(|it| it.r#type).collect();
    assert_eq!(
        last,
        [
            DomainEventType::AgentRunCompleted,
            DomainEventType::MessageReceived
        ],
        "the message is out before the completion"
    );
}

#[tokio::test]
async fn a_blank_reply_is_no_message() {
    for reply in [None, Some(" \n\t ".to_owned())] {
        let (world, run) = started("a").await;
        let mut ending = close(run, 30);
        ending.reply = reply;
        assert_eq!(world.store.close_run(ending).await.unwrap(), Closed::Closed);
        let main = ConversationId::main_of(uid("room"));
        assert!(
            world
                .store
                .messages(main, None, 10)
                .await
                .unwrap()
                .is_empty()
        );
    }
}

#[tokio::test]
async fn cost_counts_for_every_scope_by_the_time_it_arose() {
    let (world, run) = started("a").await;
    let store = &world.store;
    let identified = store.store_identity(run, identity(7), None).await.unwrap();
    assert_eq!(identified, Effect::Applied);
    store
        .append_events(run, vec![usage(1, 1_000), usage(2, 500)])
        .await
        .unwrap();
    // Closed long after, as by recovery: the money was spent when it was.
    assert_eq!(
        store.close_run(close(run, 5_000)).await.unwrap(),
        Closed::Closed
    );
    for scope in [
        scope(BudgetScopeKind::Agent, "ada"),
        scope(BudgetScopeKind::Space, "room"),
        scope(BudgetScopeKind::Repo, "app"),
        scope(BudgetScopeKind::Workspace, "acme"),
        ScopeKey {
            kind: BudgetScopeKind::Fleet,
            uid: None,
        },
    ] {
        let spend = store.spend(scope, &month()).await.unwrap();
        let spent = Totals {
            money: Money::from_micros(1_500),
            tokens: Tokens::new(15),
        };
        assert_eq!((spend.spent, spend.unpriced_runs), (spent, 0), "{scope}");
    }
    for scope in [
        scope(BudgetScopeKind::Agent, "bob"),
        scope(BudgetScopeKind::Repo, "other"),
    ] {
        let spend = store.spend(scope, &month()).await.unwrap();
        assert_eq!(spend, ScopeSpend::default(), "{scope}");
    }
    let by_agent = store.spend_by_agent(&month()).await.unwrap();
    assert_eq!(by_agent.len(), 1);
    assert_eq!((by_agent[0].agent, by_agent[0].runs), (uid("ada"), 1));
}

#[tokio::test]
async fn unknown_cost_is_not_zero_and_nothing_is_known_to_be_free() {
    // (whether a process was stored, cost, pricing, unpriced runs)
    for (has_process, cost, pricing, unpriced) in [
        (true, None, Pricing::Unpriced, 1),
        (true, Some(0), Pricing::Priced, 0),
        (false, None, Pricing::Priced, 0),
    ] {
        let (world, run) = started("a").await;
        let store = &world.store;
        if has_process {
            let identified = store.store_identity(run, identity(7), None).await.unwrap();
            assert_eq!(identified, Effect::Applied);
        }
        let mut ending = close(run, 30);
        ending.status = RunStatus::Error;
        ending.liveness = Liveness::Dead;
        ending.family = Some(ErrorFamily::ProcessLost);
        ending.end_reason = EndReason::DaemonLost;
        ending.usage = Usage {
            cost_micros: cost,
            ..Usage::default()
        };
        assert_eq!(store.close_run(ending).await.unwrap(), Closed::Closed);
        let view = store.run(&run.to_string()).await.unwrap().unwrap();
        assert_eq!(view.pricing, Some(pricing));
        let ada = scope(BudgetScopeKind::Agent, "ada");
        let spend = store.spend(ada, &month()).await.unwrap();
        assert_eq!(spend.spent, Totals::default());
        assert_eq!(spend.unpriced_runs, unpriced);
        // It reported no tokens either: only what never ran used none for sure.
        assert_eq!(spend.uncounted_runs, u32::from(has_process));
    }
}

#[tokio::test]
async fn an_estimate_is_made_from_runs_of_its_mode_that_say_what_they_used() {
    let world = World::new().await;
    let store = &world.store;
    let latest = async |mode| {
        let costs = store.latest_costs(uid("ada"), mode, 2).await.unwrap();
        let tokens = store.latest_tokens(uid("ada"), mode, 2).await.unwrap();
        let costs: Vec<i64> = costs.into_iter().map(Money::micros).collect();
        (costs, tokens.into_iter().map(Tokens::count).collect())
    };
    for (name, mode, cost, tokens) in [
        ("a", Mode::Chat, Some(10), 1),
        ("b", Mode::Plan, Some(20), 2),
        ("c", Mode::Chat, Some(30), 3),
        ("d", Mode::Chat, Some(40), 4),
        // Neither free nor unknown tells what one costs.
        ("e", Mode::Chat, Some(0), 0),
        ("f", Mode::Chat, None, 0),
    ] {
        store.record_wake(wake(name), None).await.unwrap();
        let order = RunOrder {
            mode,
            reservation: Reservation {
                money: Some(Money::from_micros(99)),
                tokens: Some(Tokens::new(99)),
            },
            ..order(&wake(name))
        };
        let admission = store.admit(&order, facts(20)).await.unwrap();
        assert_eq!(admission, Admission::Admitted);
        let identified = store.store_identity(order.run, identity(7), None);
        assert_eq!(identified.await.unwrap(), Effect::Applied);
        let mut ending = close(order.run, 30);
        ending.usage = Usage {
            input_tokens: tokens,
            cost_micros: cost,
            ..Usage::default()
        };
        assert_eq!(store.close_run(ending).await.unwrap(), Closed::Closed);
    }
    assert_eq!(latest(Mode::Chat).await, (vec![40, 30], vec![4, 3]));
    assert_eq!(latest(Mode::Plan).await, (vec![20], vec![2]));
}

/// What an agent says that it used is only said: no figure makes a sum fail.
#[tokio::test]
async fn absurd_figures_add_up_to_the_most_there_is() {
    let world = World::new().await;
    let store = &world.store;
    let ada = scope(BudgetScopeKind::Agent, "ada");
    let most = Tokens::new(i64::MAX);
    for name in ["a", "b"] {
        store.record_wake(wake(name), None).await.unwrap();
        let order = order(&wake(name));
        let admission = store.admit(&order, facts(20)).await.unwrap();
        assert_eq!(admission, Admission::Admitted);
        let absurd = UsageReport {
            input_tokens: u64::MAX,
            cached_read_tokens: u64::MAX,
            ..UsageReport::default()
        };
        let event = |seq| RunEvent {
            event: AgentEvent::Usage {
                model: None,
                usage: absurd,
            },
            ..usage(seq, 0)
        };
        let events = vec![event(1), event(2)];
        store.append_events(order.run, events).await.unwrap();
        assert_eq!(store.reserved(ada).await.unwrap().tokens, most);
        let so_far = store.spend_so_far(ada, &month()).await.unwrap();
        assert_eq!(so_far.tokens, most);
        let mut ending = close(order.run, 30);
        ending.usage = absurd.into();
        assert_eq!(store.close_run(ending).await.unwrap(), Closed::Closed);
        let spend = store.spend(ada, &month()).await.unwrap();
        assert_eq!(spend.spent.tokens, most);
    }
}

#[tokio::test]
async fn the_ledger_is_append_only() {
    let (world, run) = started("a").await;
    assert_eq!(
        world.store.close_run(close(run, 30)).await.unwrap(),
        Closed::Closed
    );
    let conn = rusqlite::Connection::open(world.path()).unwrap();
    for sql in ["UPDATE ledger SET micros = 0", "DELETE FROM ledger"] {
        assert!(conn.execute(sql, []).is_err(), "{sql}");
    }
}

#[tokio::test]
async fn a_lineage_is_its_attempts_in_order() {
    let (world, first) = started("a").await;
    let store = &world.store;
    assert_eq!(
        store.close_run(close(first, 30)).await.unwrap(),
        Closed::Closed
    );
    let mut retry = wake("a2");
    retry.previous_run = Some(first);
    retry.attempt = 1;
    let second = order(&retry);
    store.record_wake(retry, None).await.unwrap();
    assert_eq!(
        store.admit(&second, facts(31)).await.unwrap(),
        Admission::Admitted
    );
    assert_eq!(
        store.close_run(close(second.run, 32)).await.unwrap(),
        Closed::Closed
    );
    store.record_wake(wake("other"), None).await.unwrap();
    let other = order(&wake("other"));
    assert_eq!(
        store.admit(&other, facts(33)).await.unwrap(),
        Admission::Admitted
    );
    for run in [first, second.run] {
        let attempts: Vec<_> = store
            .lineage(run)
            .await
            .unwrap()
            .iter()
            .map(|view| (view.id, view.attempt, view.retry_of))
            .collect();
        assert_eq!(attempts, [(first, 0, None), (second.run, 1, Some(first))]);
    }
}

#[tokio::test]
async fn runs_are_found_by_prefix_and_filter() {
    let (world, first) = started("a").await;
    let store = &world.store;
    assert_eq!(
        store.close_run(close(first, 30)).await.unwrap(),
        Closed::Closed
    );
    store.record_wake(wake("b"), None).await.unwrap();
    let second = order(&wake("b"));
    assert_eq!(
        store.admit(&second, facts(31)).await.unwrap(),
        Admission::Admitted
    );

    assert_eq!(store.run(&first.short()).await.unwrap().unwrap().id, first);
    let shouted = first.to_string().to_uppercase();
    assert_eq!(store.run(&shouted).await.unwrap().unwrap().id, first);
    for nothing in ["", "zz", "%", "0".repeat(40).as_str()] {
        assert_eq!(store.run(nothing).await.unwrap(), None, "{nothing:?}");
    }
    let found = async |filter| {
        let runs = store.runs(filter).await.unwrap();
        runs.iter().map(|run| run.id).collect::<Vec<_>>()
    };
    let all = RunFilter::default();
    assert_eq!(found(all.clone()).await, [second.run, first]);
    let live = RunFilter {
        status: Some(RunStatus::Pending),
        ..all.clone()
    };
    assert_eq!(found(live).await, [second.run]);
    let one = RunFilter {
        limit: 1,
        ..all.clone()
    };
    assert_eq!(found(one).await, [second.run]);
    let bobs = RunFilter {
        agent: Some(uid("bob")),
        ..all
    };
    assert!(found(bobs).await.is_empty());
}

#[tokio::test]
async fn the_outbox_is_delivered_at_least_once_to_each_consumer() {
    use homeostat::store::Delivery;
    let (world, run) = started("a").await;
    let store = &world.store;
    assert_eq!(
        store.close_run(close(run, 30)).await.unwrap(),
        Closed::Closed
    );
    let consumer = || "hook".to_owned();
    let waiting = async |name: &str| {
        let events = store.undelivered(name.to_owned(), 100).await.unwrap();
        events.iter().map(|event| event.seq).collect::<Vec<_>>()
    };
    let all = waiting("hook").await;
    assert!(all.len() >= 3);
    let failed = Delivery::Failed("refused".to_owned());
    store
        .record_delivery(all[0], consumer(), failed.clone(), at(31))
        .await
        .unwrap();
    assert_eq!(waiting("hook").await, all);
    for delivery in [Delivery::Delivered, failed] {
        store
            .record_delivery(all[0], consumer(), delivery, at(32))
            .await
            .unwrap();
        assert_eq!(waiting("hook").await, all[1..]);
    }
    assert_eq!(waiting("other").await, all);
}

#[tokio::test]
async fn a_runs_beginning_is_kept_as_first_seen() {
    let (world, run) = started("a").await;
    let store = &world.store;
    let seen = |head: &str| {
        vec![TreeResult {
            worktree: worktree().id,
            head: Some(head.to_owned()),
            is_dirty: Some(true),
            dirt: Some(format!("dirt of {head}")),
        }]
    };
    assert_eq!(
        store.begin_trees(run, seen("one")).await.unwrap(),
        Effect::Applied
    );
    assert_eq!(
        store.begin_trees(run, seen("two")).await.unwrap(),
        Effect::Unchanged
    );
    let beginning = store.beginning_of(run).await.unwrap().unwrap();
    assert_eq!(beginning.before, seen("one"));
    assert_eq!(beginning.trees, order(&wake("a")).trees);
    assert_eq!(beginning.stop_requested, None);
    let unknown = store.beginning_of(RunId::derived(&["none"])).await.unwrap();
    assert_eq!(unknown, None);
}

#[tokio::test]
async fn a_history_is_the_end_of_a_conversation_and_says_what_is_before() {
    let (world, run) = started("a").await;
    let store = &world.store;
    assert_eq!(
        store.close_run(close(run, 30)).await.unwrap(),
        Closed::Closed
    );
    store.record_wake(wake("b"), None).await.unwrap();
    let second = order(&wake("b"));
    let admission = store.admit(&second, facts(31)).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    assert_eq!(
        store.close_run(close(second.run, 32)).await.unwrap(),
        Closed::Closed
    );
    let main = ConversationId::main_of(uid("room"));
    // (limit, runs of the messages, older)
    for (limit, runs, older) in [(9, vec![run, second.run], 0), (1, vec![second.run], 1)] {
        let history = store.history(main, limit).await.unwrap();
        let said: Vec<_> = history.messages.iter().filter_map(|it| it.run).collect();
        assert_eq!((said, history.older), (runs, older));
    }
}

#[tokio::test]
async fn a_history_ends_where_no_prompt_would_quote_more() {
    let world = World::new().await;
    let main = ConversationId::main_of(uid("room"));
    let length = 60_000;
    for number in 0..5 {
        let message = NewMessage {
            id: MessageId::derived(&[&number.to_string()]),
            workspace: uid("workspace"),
            space: uid("room"),
            conversation: main,
            author: Author::Human {
                name: "Ada".to_owned(),
            },
            text: "é".repeat(length),
            requested_by: None,
            created_at: at(number),
        };
        let posted = world.store.post_message(message, None, None).await.unwrap();
        assert!(!posted.was_duplicate);
    }
    let history = world.store.history(main, 500).await.unwrap();
    assert_eq!((history.messages.len(), history.older), (2, 3));
    for message in &history.messages {
        // More than a prompt's window, so that it is not quoted as if it were whole.
        let chars = message.text.chars().count();
        assert!((50_001..length).contains(&chars), "{chars}");
    }
}
