//! Folding: pairing, echoes, bounds, and that the stored form comes back.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::event::{AgentEvent, UsageReport};

fn text(text: &str) -> AgentEvent {
    AgentEvent::Text {
        text: text.to_owned(),
    }
}

fn thinking(text: &str) -> AgentEvent {
    AgentEvent::Thinking {
        text: text.to_owned(),
    }
}

fn call(id: &str, name: &str, args: Value) -> AgentEvent {
    AgentEvent::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        args,
    }
}

fn result(id: &str, output: &str) -> AgentEvent {
    AgentEvent::ToolResult {
        id: id.to_owned(),
        output: output.to_owned(),
        is_error: false,
        is_partial: false,
    }
}

fn partial(id: &str, output: &str) -> AgentEvent {
    AgentEvent::ToolResult {
        id: id.to_owned(),
        output: output.to_owned(),
        is_error: false,
        is_partial: true,
    }
}

fn fold(events: &[AgentEvent]) -> Fold {
    let mut fold = Fold::new();
    for event in events {
        fold.push(event);
    }
    fold.close();
    fold
}

/// A segment in short: `text:hi`, `tool 1 sh ok:out`.
fn short(segment: &Segment) -> String {
    match segment {
        Segment::Reasoning { text } => format!("reasoning:{text}"),
        Segment::Text { text } => format!("text:{text}"),
        Segment::Tool {
            id,
            name,
            output,
            state,
            ..
        } => {
            let name = name.as_deref().unwrap_or("?");
            format!("tool {id} {name} {state:?}:{output}")
        }
        Segment::Error { message, code } => {
            format!("error {}:{message}", code.as_deref().unwrap_or("-"))
        }
        Segment::Violation { operation, source } => format!("violation {source}:{operation}"),
        Segment::Truncated { bytes } => format!("truncated:{bytes}"),
    }
}

/// Folds, compares, and sees that the stored form comes back.
fn check(what: &str, events: &[AgentEvent], expected: &[&str]) {
    let fold = fold(events);
    let segments: Vec<_> = fold.segments().iter().map(short).collect();
    assert_eq!(segments, expected, "{what}");
    let stored = serde_json::to_string(fold.segments()).expect("JSON");
    let read: Vec<Segment> = serde_json::from_str(&stored).expect(&stored);
    assert_eq!(read, fold.segments(), "{what}");
}

#[test]
fn events_fold_into_segments() {
    let error = AgentEvent::Error {
        message: "boom".to_owned(),
        code: Some("E1".to_owned()),
    };
    let violation = AgentEvent::SandboxViolation {
        operation: "open /etc/shadow".to_owned(),
        source: "landlock".to_owned(),
    };
    let debug = AgentEvent::Debug {
        message: "x".to_owned(),
    };
    check(
        "deltas join",
        &[text("a"), text("b"), thinking("c"), thinking("d")],
        &["text:ab", "reasoning:cd"],
    );
    check(
        "debug is no segment and parts none",
        &[text("a"), debug, text("b")],
        &["text:ab"],
    );
    check(
        "failures stand where they happened",
        &[text("a"), error, violation, text("b")],
        &[
            "text:a",
            "error E1:boom",
            "violation landlock:open /etc/shadow",
            "text:b",
        ],
    );
}

#[test]
fn results_find_their_calls() {
    let failed = AgentEvent::ToolResult {
        id: "a".to_owned(),
        output: "no".to_owned(),
        is_error: true,
        is_partial: false,
    };
    let (a, b) = (|| call("a", "x", json!({})), || call("b", "y", json!({})));
    check(
        "by id, in any order",
        &[a(), b(), result("b", "2"), failed],
        &["tool a x Error:no", "tool b y Ok:2"],
    );
    check(
        "without its id, the last open call",
        &[a(), b(), result("?", "2")],
        &["tool a x Interrupted:", "tool b y Ok:2"],
    );
    check(
        "without any call, alone",
        &[text("a"), result("z", "out"), text("b")],
        &["text:a", "tool z ? Ok:out", "text:b"],
    );
    check(
        "partial results add up",
        &[a(), partial("a", "1"), partial("a", "2"), result("a", "3")],
        &["tool a x Ok:123"],
    );
    check(
        "an orphan's partial results too",
        &[partial("z", "1"), partial("z", "2")],
        &["tool z ? Interrupted:12"],
    );
    check(
        "an id used twice is its last call",
        &[a(), result("a", "1"), a(), result("a", "2")],
        &["tool a x Ok:1", "tool a x Ok:2"],
    );
}

#[test]
fn the_stored_form_is_fixed() {
    let fold = fold(&[
        thinking("hm"),
        text("hi"),
        call("1", "sh", json!({"cmd": "ls"})),
        result("1", "src"),
        AgentEvent::Error {
            message: "boom".to_owned(),
            code: None,
        },
        AgentEvent::SandboxViolation {
            operation: "open".to_owned(),
            source: "seccomp".to_owned(),
        },
    ]);
    let lines: Vec<_> = fold
        .segments()
        .iter()
        .map(|segment| serde_json::to_string(segment).expect("JSON"))
        .collect();
    assert_eq!(
        lines,
        [
            r#"{"type":"reasoning","text":"hm"}"#,
            r#"{"type":"text","text":"hi"}"#,
            r#"{"type":"tool","id":"1","name":"sh","args":{"cmd":"ls"},"output":"src","state":"ok"}"#,
            r#"{"type":"error","message":"boom"}"#,
            r#"{"type":"violation","operation":"open","source":"seccomp"}"#,
        ]
    );
}

#[test]
fn an_echo_of_arguments_is_blanked_and_no_other_text() {
    let args = || json!({"cmd": "ls", "n": 1});
    let echo = r#" {"n":1, "cmd":"ls"} "#;
    let other = r#"{"n":2,"cmd":"ls"}"#;
    for (what, events, reply) in [
        (
            "after the call",
            vec![call("1", "sh", args()), text(echo), result("1", "")],
            "",
        ),
        (
            "before the call",
            vec![text("a"), thinking(""), text(echo), call("1", "sh", args())],
            "a",
        ),
        (
            "in pieces",
            vec![call("1", "sh", args()), text(&echo[..9]), text(&echo[9..])],
            "",
        ),
        (
            "not the same",
            vec![call("1", "sh", args()), text(other)],
            other,
        ),
        (
            "not beside it",
            vec![call("1", "sh", args()), thinking("x"), text(echo)],
            echo.trim(),
        ),
        (
            "no structure",
            vec![call("1", "sh", json!("ls")), text("ls")],
            "ls",
        ),
    ] {
        assert_eq!(fold(&events).reply_text(), reply, "{what}");
    }
}

#[test]
fn the_reply_is_the_visible_text_in_paragraphs() {
    let fold = fold(&[
        text("\nLooking."),
        thinking("secret"),
        call("1", "sh", json!({})),
        result("1", "output"),
        text("  \n"),
        thinking("more"),
        text("Fixed.\n"),
        text("Really.\n\n"),
    ]);
    assert_eq!(fold.reply_text(), "Looking.\n\nFixed.\nReally.");
    assert_eq!(fold.last_text(), "Fixed.\nReally.");
    assert_eq!(Fold::new().reply_text(), "");
    assert_eq!(Fold::new().last_text(), "");
}

#[test]
fn figures_and_ends_are_kept_beside_the_segments() {
    let usage = |model: Option<&str>, cost_micros| AgentEvent::Usage {
        model: model.map(ToOwned::to_owned),
        usage: UsageReport {
            input_tokens: 10,
            cost_micros,
            ..UsageReport::default()
        },
    };
    let mut fold = fold(&[
        usage(Some("big"), Some(5)),
        usage(None, None),
        call("1", "sh", json!({})),
        call("2", "sh", json!({})),
        call("3", "edit", json!({})),
    ]);
    assert_eq!(fold.usage().input_tokens, 20);
    assert_eq!(fold.usage().cost_micros, Some(5));
    assert_eq!(fold.model(), Some("big"));
    assert_eq!(
        fold.tools().into_iter().collect::<Vec<_>>(),
        [("edit", 1), ("sh", 2)]
    );
    assert!(!fold.has_done() && fold.last_error().is_none());
    fold.push(&AgentEvent::Error {
        message: "boom".to_owned(),
        code: None,
    });
    fold.push(&AgentEvent::Done {});
    assert!(fold.has_done());
    assert_eq!(
        fold.last_error().map(|error| error.message.as_str()),
        Some("boom")
    );
}

/// Bytes that a stored transcript takes, escapes left aside.
fn size(fold: &Fold) -> usize {
    fold.segments()
        .iter()
        .map(|segment| format!("{segment:?}").len())
        .sum()
}

#[test]
fn a_flood_is_cut_where_it_is_noted_and_the_answer_survives() {
    let mut fold = Fold::new();
    let big = "x".repeat(60_000);
    for at in 0..200 {
        fold.push(&call(&at.to_string(), "sh", json!({"text": big})));
        fold.push(&partial(&at.to_string(), &big));
        fold.push(&result(&at.to_string(), &big));
        fold.push(&thinking(&big));
    }
    fold.push(&text("The answer."));
    fold.push(&AgentEvent::Done {});
    fold.close();
    assert_eq!(fold.reply_text(), "The answer.");
    assert!(fold.has_done());
    assert!(size(&fold) < REST_BYTES_MAX + 100_000, "{}", size(&fold));
    let notes: Vec<_> = fold
        .segments()
        .iter()
        .filter(|segment| matches!(segment, Segment::Truncated { .. }))
        .collect();
    let [Segment::Truncated { bytes }] = notes[..] else {
        panic!("one note: {notes:?}");
    };
    assert!(*bytes > 30_000_000, "{bytes}");
    let Some(Segment::Tool {
        output,
        output_dropped,
        ..
    }) = fold.segments().first()
    else {
        panic!("a tool first");
    };
    assert_eq!(output.len(), TOOL_BYTES_MAX);
    assert_eq!(*output_dropped, 2 * 60_000 - 65_536);
}

#[test]
fn a_flood_of_words_is_cut_as_well() {
    let mut fold = Fold::new();
    for _ in 0..40 {
        fold.push(&text(&"é".repeat(30_000)));
    }
    fold.push(&call("1", "sh", json!({})));
    fold.close();
    assert!(fold.reply_text().len() <= TEXT_BYTES_MAX);
    let kinds: Vec<_> = fold
        .segments()
        .iter()
        .map(|segment| short(segment).chars().take(9).collect::<String>())
        .collect();
    assert_eq!(kinds, ["text:éééé", "truncated", "tool 1 sh"]);
}

#[test]
fn once_calls_are_missing_a_result_is_not_given_to_another() {
    let mut fold = Fold::new();
    fold.push(&call("kept", "sh", json!({})));
    let big = "x".repeat(60_000);
    for at in 0..100 {
        fold.push(&call(&format!("flood {at}"), "sh", json!({"text": big})));
    }
    fold.push(&result("flood 99", "stray"));
    fold.push(&result("kept", "own"));
    fold.close();
    assert_eq!(
        fold.segments().first().map(short).as_deref(),
        Some("tool kept sh Ok:own")
    );
    assert!(
        !fold
            .segments()
            .iter()
            .any(|segment| short(segment).contains("stray"))
    );
}

#[test]
fn a_next_attempt_is_told_what_was_done() {
    assert_eq!(
        continuation_summary(
            &Fold::new(),
            &[ChangedTree {
                repo: "api",
                files: &[]
            }]
        ),
        "It had said nothing and changed nothing."
    );
    let fold = fold(&[
        text("I look first."),
        call("1", "sh", json!({})),
        call("2", "sh", json!({})),
        call("3", "edit", json!({})),
        text("Now the test.\n"),
    ]);
    let files = ["src/a.rs".to_owned(), "a\nb".to_owned()];
    let trees = [
        ChangedTree {
            repo: "api",
            files: &files,
        },
        ChangedTree {
            repo: "web",
            files: &[],
        },
    ];
    assert_eq!(
        continuation_summary(&fold, &trees),
        "Changed in api: src/a.rs, a b.\n\
         Tools called: edit, sh (2 times).\n\
         Its last words:\nNow the test."
    );
}

#[test]
fn what_a_next_attempt_is_told_is_bounded() {
    let mut events: Vec<_> = (0..300)
        .map(|at| call("1", &format!("{at}{}", "t".repeat(900)), json!({})))
        .collect();
    events.push(text(&"é".repeat(50_000)));
    let files: Vec<_> = (0..1_000)
        .map(|at| format!("{at}{}", "f".repeat(900)))
        .collect();
    let trees = [ChangedTree {
        repo: "api",
        files: &files,
    }; 20];
    let told = continuation_summary(&fold(&events), &trees);
    assert!(told.chars().count() <= CONTINUATION_CHARS_MAX);
    let few = continuation_summary(&fold(&[text(&"é".repeat(5_000))]), &[]);
    assert!(few.starts_with("Its last words:\n[…] é") && few.ends_with('é'));
    let many = files.iter().map(|_| "f".to_owned()).collect::<Vec<_>>();
    let told = continuation_summary(
        &Fold::new(),
        &[ChangedTree {
            repo: "api",
            files: &many,
        }],
    );
    assert!(told.ends_with("f and 960 more."), "{told}");
}

fn any_event() -> impl Strategy<Value = AgentEvent> {
    let id = || "[ab]?";
    prop_oneof![
        any::<String>().prop_map(|words| thinking(&words)),
        any::<String>().prop_map(|words| text(&words)),
        Just(text("{\"a\":1}")),
        id().prop_map(|id| call(&id, "sh", json!({"a": 1}))),
        (id(), any::<String>(), any::<bool>(), any::<bool>()).prop_map(
            |(id, output, is_error, is_partial)| AgentEvent::ToolResult {
                id,
                output,
                is_error,
                is_partial,
            }
        ),
        any::<String>().prop_map(|message| AgentEvent::Error {
            message,
            code: None,
        }),
        Just(AgentEvent::Done {}),
    ]
}

proptest! {
    #[test]
    fn every_fold_ends_stores_and_repeats(events in vec(any_event(), 0..16)) {
        let once = fold(&events);
        let again = fold(&events);
        prop_assert_eq!(once.segments(), again.segments());
        let mut twice = once.clone();
        twice.close();
        prop_assert_eq!(once.segments(), twice.segments());
        for segment in once.segments() {
            let is_running = matches!(segment, Segment::Tool { state: ToolState::Running, .. });
            prop_assert!(!is_running);
        }
        let stored = serde_json::to_string(once.segments()).expect("JSON");
        let read: Vec<Segment> = serde_json::from_str(&stored).expect("what was stored");
        prop_assert_eq!(read, once.segments());
        let said_done = events.iter().any(|event| matches!(event, AgentEvent::Done {}));
        prop_assert_eq!(once.has_done(), said_done);
    }
}
