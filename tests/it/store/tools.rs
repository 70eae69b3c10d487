//! The tools of runs over real records: memory and deliverables in the store, and all of it through
//! the MCP server on loopback, as an agent would call it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use homeostat::clock::ManualClock;
use homeostat::dispatch::RecordTools;
use homeostat::gateway::{MCP_REQUEST_BYTES_MAX, McpGateway, McpSpec, RunToken};
use homeostat::model::event::AgentEvent;
use homeostat::model::id::{ConversationId, MessageId, RunId};
use homeostat::model::spec::Mode;
use homeostat::model::tool::{Contract, Principal, Verb};
use homeostat::model::wake::Wake;
use homeostat::prompt::{PromptInput, assemble};
use homeostat::redact::{Known, Redactor};
use homeostat::store::{
    Admission, AdmitFacts, Author, Effect, NewFact, NewMessage, Noted, Store, StoreError,
};
use homeostat::task::Tracker;
use homeostat::tool::materialize;
use serde_json::{Value, json};
use strum::IntoEnumIterator;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::world::{World, assert_same, at, close, dump, facts, order_without_trees, uid, wake};

/// A run in a conversation of its own, which owes what plan mode asks for.
async fn planning(store: &Store, name: &str) -> Principal {
    let conversation = ConversationId::derived(&[name]);
    let wake = Wake {
        conversation,
        ..wake(name)
    };
    store.record_wake(wake.clone(), None).await.unwrap();
    let mut order = order_without_trees(&wake);
    order.mode = Mode::Plan;
    let facts = AdmitFacts {
        contract: Mode::Plan.contract(),
        ..facts(20)
    };
    let admission = store.admit(&order, facts).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    Principal {
        run: order.run,
        agent: order.agent,
        workspace: order.workspace,
        conversation,
    }
}

fn fact(run: RunId, workspace: &str, key: &str, text: &str) -> NewFact {
    NewFact {
        workspace: uid(workspace),
        key: key.to_owned(),
        text: text.to_owned(),
        agent: uid("ada"),
        run,
        created_at: at(30),
    }
}

/// The keys that a query finds.
async fn found(store: &Store, workspace: &str, query: &str) -> Vec<String> {
    let facts = store.recall(uid(workspace), query, 10).await.unwrap();
    facts.into_iter().map(|fact| fact.key).collect()
}

#[tokio::test]
async fn a_fact_is_found_by_its_words_in_its_workspace() {
    let world = World::new().await;
    let store = &world.store;
    let run = planning(store, "a").await.run;
    for (workspace, key, text) in [
        ("acme", "flaky tests", "They need a clock of their own."),
        ("acme", "release", "Tag first; the tests run on the tag."),
        ("acme", "style", "Short words."),
        ("other", "flaky tests", "Elsewhere."),
    ] {
        let noted = store.remember(fact(run, workspace, key, text)).await;
        assert_eq!(noted.unwrap(), Noted::New);
    }
    assert_eq!(
        found(store, "acme", "the test is flaky").await,
        ["flaky tests", "release"]
    );
    assert_eq!(found(store, "acme", "clocks").await, ["flaky tests"]);
    assert_eq!(found(store, "other", "clocks").await, [""; 0]);
    assert_eq!(
        found(store, "acme", "\"; DROP TABLE facts; --").await,
        [""; 0]
    );
    assert_eq!(found(store, "acme", "* OR NOT (").await, [""; 0]);
    let one = store.recall(uid("acme"), "tests", 1).await.unwrap();
    assert_eq!(one.len(), 1);
}

#[tokio::test]
async fn a_fact_is_superseded_and_never_edited() {
    let world = World::new().await;
    let store = &world.store;
    let run = planning(store, "a").await.run;
    let remember = async |text: &str| store.remember(fact(run, "acme", "port", text)).await;
    assert_eq!(remember("It is 4000.").await.unwrap(), Noted::New);
    let before = dump(&world.path());
    assert_eq!(remember("It is 4000.").await.unwrap(), Noted::Already);
    assert_same(&before, &dump(&world.path()), "a fact that is known");
    assert_eq!(remember("It is 5000.").await.unwrap(), Noted::Superseding);

    let facts = store.recall(uid("acme"), "port", 10).await.unwrap();
    assert_eq!(facts.len(), 1);
    assert_eq!(facts[0].text, "It is 5000.");
    assert_eq!(found(store, "acme", "4000").await, [""; 0]);

    let conn = rusqlite::Connection::open(world.path()).unwrap();
    let history: Vec<(String, Option<i64>)> = conn
        .prepare("SELECT text, superseded_by FROM facts ORDER BY seq")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    assert_eq!(
        history,
        [
            ("It is 4000.".to_owned(), Some(2)),
            ("It is 5000.".to_owned(), None)
        ]
    );
    for edit in [
        "UPDATE facts SET text = 'It is 1.'",
        "UPDATE facts SET superseded_by = NULL WHERE seq = 1",
    ] {
        assert!(conn.execute(edit, []).is_err(), "{edit}");
    }
    let stranger = fact(RunId::derived(&["nobody"]), "acme", "k", "t");
    assert!(matches!(
        store.remember(stranger).await,
        Err(StoreError::Write { .. })
    ));
}

#[tokio::test]
async fn what_a_run_owes_is_handed_in_while_it_lives() {
    let world = World::new().await;
    let store = &world.store;
    let run = planning(store, "a").await.run;
    let contract = async || store.contract_of(run).await.unwrap();
    let owed = |is_met| {
        Some(Contract {
            verb: Verb::SubmitPlan,
            is_met,
        })
    };
    assert_eq!(contract().await, owed(false));
    let hand_in = async |verb, plan: &str| {
        let output = json!({ "plan": plan });
        store.hand_in(run, verb, output).await.unwrap()
    };
    assert!(matches!(
        hand_in(Verb::Remember, "x").await,
        Effect::Stale(_)
    ));
    assert_eq!(contract().await, owed(false));
    assert_eq!(hand_in(Verb::SubmitPlan, "one").await, Effect::Applied);
    assert_eq!(hand_in(Verb::SubmitPlan, "one").await, Effect::Unchanged);
    assert_eq!(hand_in(Verb::SubmitPlan, "two").await, Effect::Applied);
    assert_eq!(contract().await, owed(true));

    let _closed = store.close_run(close(run, 40)).await.unwrap();
    assert!(matches!(
        hand_in(Verb::SubmitPlan, "late").await,
        Effect::Stale(_)
    ));
    let view = store.run(&run.to_string()).await.unwrap().unwrap();
    assert_eq!(view.mode, Mode::Plan);
    assert_eq!(view.contract, Some(Verb::SubmitPlan));
    assert_eq!(
        store.output_of(run).await.unwrap(),
        Some(json!({ "plan": "two" }))
    );
    let nobody = RunId::derived(&["nobody"]);
    assert_eq!(store.output_of(nobody).await.unwrap(), None);
    assert_eq!(store.contract_of(nobody).await.unwrap(), None);
}

#[test]
fn a_prompt_names_what_the_server_offers_and_nothing_else() {
    for mode in Mode::iter() {
        let wake = wake("a");
        let mut order = order_without_trees(&wake);
        order.mode = mode;
        let tools = materialize(mode);
        let prompt = assemble(&PromptInput {
            order: &order,
            wake: &wake,
            history: &[],
            older: 3,
            is_resumed: false,
            tools: &tools,
            facts: &[],
        })
        .render();
        let named: BTreeSet<_> = prompt
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        let offered: BTreeSet<_> = tools.iter().map(|tool| tool.verb.to_string()).collect();
        assert_eq!(named, offered, "{mode}");
    }
}

/// What no record may hold.
const SECRET: &str = "correct-horse-battery-staple";

/// A small fleet's records, and what serves tools over them.
struct Rig {
    world: World,
    port: Arc<RecordTools>,
    clock: Arc<ManualClock>,
    tracker: Tracker,
}

/// A run with its gateway on loopback.
struct Caller {
    by: Principal,
    token: String,
    gateway: McpGateway,
    /// What its calls left.
    notes: mpsc::Receiver<AgentEvent>,
}

impl Rig {
    async fn new() -> Self {
        let world = World::new().await;
        let clock = Arc::new(ManualClock::starting_at(at(50)));
        let secret = Known {
            name: "MODEL_KEY",
            value: SECRET,
        };
        Self {
            port: Arc::new(RecordTools::new(
                world.store.clone(),
                clock.clone(),
                Arc::new(Redactor::new(&[secret])),
            )),
            world,
            clock,
            tracker: Tracker::new(),
        }
    }

    async fn caller(&self, name: &str, mode: Mode) -> Caller {
        let by = planning(&self.world.store, name).await;
        let token = by.run.uuid().simple().to_string();
        let (notes, received) = mpsc::channel(200);
        let spec = McpSpec {
            token: RunToken::new(token.clone()).unwrap(),
            principal: by,
            tools: materialize(mode),
            notes,
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, clock) = (self.port.clone(), self.clock.clone());
        let gateway = McpGateway::start(listener, spec, port, clock, &self.tracker).unwrap();
        Caller {
            by,
            token,
            gateway,
            notes: received,
        }
    }

    async fn post(&self, by: Principal, text: &str) {
        let message = NewMessage {
            id: MessageId::derived(&[text]),
            workspace: by.workspace,
            space: uid("room"),
            conversation: by.conversation,
            author: Author::Human {
                name: "Grace".to_owned(),
            },
            text: text.to_owned(),
            requested_by: None,
            created_at: at(40),
        };
        let posted = self.world.store.post_message(message, None, None).await;
        assert!(!posted.unwrap().was_duplicate);
    }

    async fn stop(self) {
        self.tracker.cancel();
        assert!(self.tracker.wait(Duration::from_secs(10)).await.is_empty());
    }
}

impl Caller {
    fn header(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }

    /// Sends a body with these headers; status and body of the answer.
    async fn send(&self, method: &str, headers: &str, body: &str) -> (u16, String) {
        let url = self.gateway.url().strip_prefix("http://").unwrap();
        let (address, path) = url.split_once('/').unwrap();
        let Ok(mut stream) = TcpStream::connect(address).await else {
            return (0, String::new());
        };
        let head = format!(
            "{method} /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Accept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        // A server that refuses early may close before it has read everything.
        let _written = stream.write_all(head.as_bytes()).await;
        let _written = stream.write_all(body.as_bytes()).await;
        let mut answer = Vec::new();
        let _read = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        (status.unwrap_or(0), body.to_owned())
    }

    async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (status, body) = self.send("POST", &self.header(), &body.to_string()).await;
        assert_eq!(status, 200, "{method}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["result"].clone()
    }

    /// What a tool says, and whether it is an error.
    async fn call(&self, tool: &str, args: Value) -> (String, bool) {
        let params = json!({"name": tool, "arguments": args});
        let result = self.rpc("tools/call", params).await;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        (text.to_owned(), result["isError"] == json!(true))
    }
}

#[tokio::test]
async fn an_agent_is_offered_what_its_mode_has() {
    let rig = Rig::new().await;
    let ada = rig.caller("a", Mode::Plan).await;
    let hello = ada
        .rpc(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }),
        )
        .await;
    assert_eq!(hello["serverInfo"]["name"], "homeostat");
    assert_eq!(hello["protocolVersion"], "2025-11-25");
    let listed = ada.rpc("tools/list", json!({})).await;
    let names: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    let materialized: Vec<_> = materialize(Mode::Plan)
        .iter()
        .map(|tool| tool.verb.to_string())
        .collect();
    assert_eq!(names, materialized);
    rig.stop().await;
}

#[tokio::test]
async fn a_conversation_is_read_page_by_page() {
    let rig = Rig::new().await;
    let ada = rig.caller("a", Mode::Chat).await;
    for text in ["first", "second", "third"] {
        rig.post(ada.by, text).await;
    }
    let (page, is_error) = ada.call("get_messages", json!({"limit": 2})).await;
    assert!(!is_error);
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["messages"][1]["text"], "third");
    assert_eq!(page["messages"][0]["from"], "Grace");
    let older = json!({"before": page["before"]});
    let (page, _) = ada.call("get_messages", older).await;
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1);
    assert_eq!(page["messages"][0]["text"], "first");
    assert_eq!(page.get("before"), None);
    rig.stop().await;
}

#[tokio::test]
async fn a_call_leaves_its_mark_and_its_note() {
    let rig = Rig::new().await;
    let mut ada = rig.caller("a", Mode::Plan).await;
    let kept = json!({"key": "port", "text": "It is 4000."});
    assert_eq!(
        ada.call("remember", kept).await,
        ("Kept.".to_owned(), false)
    );
    assert_eq!(
        ada.call("recall", json!({"query": "which port?"})).await,
        (
            r#"{"facts":[{"key":"port","text":"It is 4000."}]}"#.to_owned(),
            false
        )
    );
    assert_eq!(
        ada.call("submit_plan", json!({"plan": "Do it."})).await,
        ("The plan is handed in.".to_owned(), false)
    );
    let contract = rig.world.store.contract_of(ada.by.run).await.unwrap();
    assert!(contract.is_some_and(|contract| contract.is_met));
    assert_eq!(
        ada.call("submit_plan", json!({})).await,
        (
            "submit_plan was called wrongly: missing field `plan`".to_owned(),
            true
        )
    );

    let mut notes = Vec::new();
    while let Ok(AgentEvent::Debug { message }) = ada.notes.try_recv() {
        notes.push(message);
    }
    assert_eq!(
        notes,
        [
            "tool remember: ok (0 ms)",
            "tool recall: ok (0 ms)",
            "tool submit_plan: ok (0 ms)",
            "tool submit_plan: failed: submit_plan was called wrongly: missing field `plan` (0 ms)",
        ]
    );
    // Nobody listens to the run's events any more: its calls would go unseen.
    ada.notes.close();
    let kept = json!({"key": "late", "text": "Too late."});
    assert_eq!(
        ada.call("remember", kept).await,
        ("the run is over".to_owned(), true)
    );
    assert_eq!(found(&rig.world.store, "acme", "late").await, [""; 0]);
    rig.stop().await;
}

#[tokio::test]
async fn what_a_run_wants_kept_is_kept_without_its_secrets() {
    let rig = Rig::new().await;
    let ada = rig.caller("a", Mode::Plan).await;
    let text = format!("The key is {SECRET}.");
    for (tool, args) in [
        ("remember", json!({"key": SECRET, "text": text})),
        ("submit_plan", json!({"plan": text})),
    ] {
        let (said, is_error) = ada.call(tool, args).await;
        assert!(!is_error, "{said}");
    }
    let output = rig.world.store.output_of(ada.by.run).await.unwrap();
    assert!(output.is_some_and(|it| it["plan"].as_str().unwrap().starts_with("The key is ")));
    let rows = dump(&rig.world.path());
    assert!(!rows.iter().any(|row| row.contains(SECRET)));
    rig.stop().await;
}

#[tokio::test]
async fn a_run_sees_its_own_conversation_and_its_own_tools() {
    let rig = Rig::new().await;
    let (ada, bob) = (
        rig.caller("a", Mode::Plan).await,
        rig.caller("b", Mode::Chat).await,
    );
    rig.post(ada.by, "for ada").await;
    rig.post(bob.by, "for bob").await;
    for (caller, expected) in [(&ada, "for ada"), (&bob, "for bob")] {
        let (page, _) = caller.call("get_messages", json!({})).await;
        let page: Value = serde_json::from_str(&page).unwrap();
        let messages = page["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0]["text"], expected);
    }
    let other = json!({"conversation": ada.by.conversation});
    let (said, is_error) = bob.call("get_messages", other).await;
    assert!(is_error, "{said}");
    assert_eq!(
        bob.call("submit_plan", json!({"plan": "x"})).await,
        (
            "there is no tool \"submit_plan\" in this run".to_owned(),
            true
        )
    );
    rig.stop().await;
}

#[tokio::test]
async fn only_the_run_itself_is_let_in() {
    let rig = Rig::new().await;
    let ada = rig.caller("a", Mode::Plan).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let (mine, other) = (ada.header(), rig.caller("b", Mode::Plan).await.header());
    for (headers, expected) in [
        (String::new(), 401),
        ("Authorization: Bearer nonsense\r\n".to_owned(), 401),
        (other, 401),
        (mine.replace("Bearer", "Basic"), 401),
        (format!("{mine}Origin: http://evil.example\r\n"), 403),
        (mine.clone(), 200),
    ] {
        let (status, body) = ada.send("POST", &headers, &list).await;
        assert_eq!(status, expected, "{headers} {body}");
    }
    // There are no sessions: nothing to listen to, nothing to end.
    for method in ["GET", "DELETE"] {
        assert_eq!(ada.send(method, &mine, "").await.0, 405, "{method}");
    }
    // Without anybody's asking the tracker to end: the gateway ends with its owner.
    drop(ada);
    let left = rig.tracker.wait(Duration::from_secs(10)).await;
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn what_a_run_may_ask_is_bounded() {
    let rig = Rig::new().await;
    let ada = rig.caller("a", Mode::Plan).await;
    let huge = "x".repeat(MCP_REQUEST_BYTES_MAX + 1);
    let (status, _) = ada.send("POST", &ada.header(), &huge).await;
    assert_eq!(status, 413);

    let kept = |n: u32| json!({"key": "k", "text": n.to_string()});
    for n in 0..30 {
        let (said, is_error) = ada.call("remember", kept(n)).await;
        assert!(!is_error, "{said}");
    }
    let (said, is_error) = ada.call("remember", kept(30)).await;
    assert!(is_error && said.starts_with("too many calls"), "{said}");
    let (_, is_error) = ada.call("recall", json!({"query": "k"})).await;
    assert!(!is_error, "reading has a limit of its own");
    rig.clock.advance(Duration::from_secs(61));
    let (_, is_error) = ada.call("remember", kept(30)).await;
    assert!(!is_error);
    rig.stop().await;
}
