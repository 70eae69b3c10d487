//! What is launched, what is written, and what a parser makes of lines that no recording has.

use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::adapter::lines::{LINE_BYTES_MAX, Line};
use crate::model::event::AgentEvent;
use crate::model::process::Exit;
use crate::model::run::EndReason;
use crate::model::spec::{AdapterType, Effort, OutputFormat};

fn adapter(env: &[(&str, &str)]) -> ClaudeCode {
    ClaudeCode::new(&AdapterSpec {
        prices: Vec::new(),
        r#type: AdapterType::ClaudeCode,
        command: Some("/bin/sh".to_owned()),
        args: vec!["--max-turns".to_owned(), "5".to_owned()],
        env: map(env),
        output: OutputFormat::Text,
    })
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

static NONE: BTreeMap<String, String> = BTreeMap::new();

fn spec<'a>(caller_env: &'a BTreeMap<String, String>) -> LaunchSpec<'a> {
    LaunchSpec {
        prompt: "Say \"hi\"\nto all.",
        search_path: "/usr/bin:/bin",
        home: "/run/home",
        tmp: "/run/tmp",
        user: "agent",
        time_zone: "UTC",
        git_env: &NONE,
        caller_env,
        wake_env: &NONE,
        model: None,
        effort: None,
        endpoint: None,
        session: Session::New(Uuid::nil()),
        config_dir: "/run/config",
        state_dir: "/conversation/claude",
        mcp_servers: &[],
    }
}

#[test]
fn a_launch_asks_for_everything_in_so_many_words() {
    let servers = [McpServer {
        name: "homeostat",
        url: "http://127.0.0.1:9/mcp",
        token: "t0ken",
    }];
    let launch = adapter(&[])
        .launch(&LaunchSpec {
            model: Some("claude-sonnet-4-5"),
            effort: Some(Effort::XHigh),
            mcp_servers: &servers,
            ..spec(&NONE)
        })
        .expect("a launch");
    let expected = "/bin/sh --print --verbose --input-format stream-json --output-format \
                    stream-json --dangerously-skip-permissions --strict-mcp-config \
                    --setting-sources user --mcp-config /run/config/mcp.json --settings \
                    /run/config/settings.json --model claude-sonnet-4-5 --effort xhigh \
                    --session-id 00000000-0000-0000-0000-000000000000 --max-turns 5";
    assert_eq!(launch.argv.join(" "), expected);
    assert!(launch.keeps_stdin);
    let sent: Value = serde_json::from_str(&launch.stdin).expect("JSON");
    assert_eq!(sent["message"]["content"][0]["text"], "Say \"hi\"\nto all.");
    assert_eq!(launch.stdin.matches('\n').count(), 1);
    let files: Vec<_> = launch
        .files
        .iter()
        .map(|file| format!("{} {}", file.name, file.text))
        .collect();
    assert_eq!(
        files,
        [
            r#"mcp.json {"mcpServers":{"homeostat":{"type":"http","url":"http://127.0.0.1:9/mcp","headers":{"Authorization":"Bearer t0ken"}}}}"#,
            r#"settings.json {"includeCoAuthoredBy":false,"attribution":{"commit":"","pr":""}}"#,
        ]
    );
    let debug = format!("{launch:?} {servers:?}");
    assert!(
        !debug.contains("t0ken") && !debug.contains("Say"),
        "{debug}"
    );
}

#[test]
fn the_options_that_are_checked_are_those_that_are_passed() {
    let id = Uuid::from_u128(7);
    let mut passed = BTreeSet::new();
    for session in [Session::New(id), Session::Resume(id)] {
        let spec = LaunchSpec {
            model: Some("m"),
            effort: Some(Effort::XHigh),
            session,
            ..spec(&NONE)
        };
        let mut adapter = adapter(&[]);
        adapter.args.clear();
        let argv = adapter.launch(&spec).expect("a launch").argv;
        passed.extend(argv.into_iter().filter(|arg| arg.starts_with("--")));
    }
    assert_eq!(passed.into_iter().collect::<Vec<_>>(), OPTIONS);
}

#[test]
fn a_known_session_is_resumed_under_its_own_id() {
    let id = Uuid::from_u128(7);
    let launch = adapter(&[]).launch(&LaunchSpec {
        session: Session::Resume(id),
        ..spec(&NONE)
    });
    let argv = launch.expect("a launch").argv.join(" ");
    assert!(argv.contains(" --resume 00000000-0000-0000-0000-000000000007"));
    assert!(!argv.contains("--session-id"), "{argv}");
    assert!(
        !argv.contains("--model") && !argv.contains("--effort"),
        "{argv}"
    );
}

#[test]
fn with_a_gateway_no_other_way_to_a_model_is_left() {
    let caller = map(&[
        ("ANTHROPIC_AUTH_TOKEN", "real"),
        ("anthropic_base_url", "http://elsewhere"),
        ("CLAUDE_CODE_USE_BEDROCK", "1"),
        ("CLAUDE_CONFIG_DIR", "/elsewhere"),
        ("DISABLE_TELEMETRY", "0"),
        ("KEPT", "1"),
    ]);
    let own = adapter(&[
        ("ANTHROPIC_API_KEY", "real"),
        ("CLAUDE_CODE_MAX_RETRIES", "7"),
    ]);
    let endpoint = Endpoint {
        base_url: "http://127.0.0.1:9/r/x",
        key: "dummy",
    };
    let with = LaunchSpec {
        endpoint: Some(endpoint),
        ..spec(&caller)
    };
    let env = own.launch(&with).expect("a launch").env;
    let of = |name: &str| env.get(name).map(String::as_str);
    assert_eq!(of("ANTHROPIC_BASE_URL"), Some("http://127.0.0.1:9/r/x"));
    assert_eq!(of("ANTHROPIC_API_KEY"), Some("dummy"));
    assert_eq!(of("CLAUDE_CONFIG_DIR"), Some("/conversation/claude"));
    assert_eq!(of("CLAUDE_CODE_MAX_RETRIES"), Some("7"));
    assert_eq!(of("DISABLE_TELEMETRY"), Some("1"));
    assert_eq!(of("KEPT"), Some("1"));
    for name in [
        "ANTHROPIC_AUTH_TOKEN",
        "anthropic_base_url",
        "CLAUDE_CODE_USE_BEDROCK",
    ] {
        assert_eq!(of(name), None, "{name}");
    }
    let env = own.launch(&spec(&caller)).expect("a launch").env;
    assert_eq!(env["ANTHROPIC_API_KEY"], "real");
    assert_eq!(env["ANTHROPIC_AUTH_TOKEN"], "real");
    assert!(!format!("{with:?}").contains("dummy"));
}

#[test]
fn a_missing_program_says_how_to_get_it() {
    let error = find(None, "/nowhere").expect_err("not there");
    assert_eq!(error.code(), "not_installed");
    assert!(error.remedy().contains("@anthropic-ai/claude-code"));
    let error = find(Some("/nowhere/claude"), "/bin").expect_err("not there");
    assert_eq!(error.code(), "program_not_found");
    assert!(find(Some("sh"), "/usr/bin:/bin").is_ok());
}

fn feed(parser: &mut dyn EventParser, lines: &[&str]) -> Vec<AgentEvent> {
    lines
        .iter()
        .flat_map(|line| parser.stdout_line(&Line::from(*line)))
        .collect()
}

fn names(events: &[AgentEvent]) -> Vec<&'static str> {
    events.iter().map(AgentEvent::type_name).collect()
}

const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","modelUsage":{"m":{"inputTokens":10,"outputTokens":2,"costUSD":0.5}}}"#;
const AGAIN: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","modelUsage":{"m":{"inputTokens":15,"outputTokens":4,"costUSD":0.75},"n":{"inputTokens":1}}}"#;
const ABORTED: &str = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","modelUsage":{}}"#;

#[test]
fn an_undisturbed_run_is_done_at_its_result() {
    let mut parser = adapter(&[]).parser();
    assert!(!parser.awaits_input());
    assert_eq!(names(&feed(&mut *parser, &[RESULT])), ["usage", "done"]);
    assert!(parser.awaits_input());
    let finished = parser.finish(EndReason::AgentFinished, Exit::with_code(1));
    assert!(finished.is_empty());
}

#[test]
fn a_run_that_was_spoken_to_is_done_when_its_process_is() {
    let mut parser = adapter(&[]).parser();
    parser.note_input();
    assert_eq!(names(&feed(&mut *parser, &[ABORTED])), Vec::<&str>::new());
    assert!(parser.awaits_input());
    parser.note_input();
    assert!(!parser.awaits_input());
    assert_eq!(names(&feed(&mut *parser, &[RESULT])), ["usage"]);
    assert!(parser.awaits_input());
    let finished = parser.finish(EndReason::AgentFinished, Exit::with_code(0));
    assert_eq!(names(&finished), ["done"]);

    let mut parser = adapter(&[]).parser();
    parser.note_input();
    feed(&mut *parser, &[ABORTED]);
    let finished = parser.finish(EndReason::AgentFinished, Exit::with_code(1));
    assert_eq!(names(&finished), ["debug", "done"]);
}

#[test]
fn a_turn_that_went_well_does_not_stand_for_the_next() {
    const MORE: &str =
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"And"}]}}"#;
    let killed = Exit {
        signal: Some(9),
        ..Exit::default()
    };
    for (lines, exit, ended) in [
        (&[RESULT, MORE][..], killed, ["error", "done"].as_slice()),
        (&[RESULT, MORE], Exit::with_code(0), &["done"]),
        // It had said its last word.
        (&[RESULT, MORE, AGAIN], killed, &["done"]),
    ] {
        let mut parser = adapter(&[]).parser();
        parser.note_input();
        feed(&mut *parser, lines);
        let finished = parser.finish(EndReason::AgentFinished, exit);
        assert_eq!(names(&finished), ended, "{lines:?}");
    }
}

#[test]
fn an_abort_that_nobody_asked_for_is_a_failure() {
    let mut parser = adapter(&[]).parser();
    let events = feed(&mut *parser, &[ABORTED]);
    let [AgentEvent::Error { code, .. }, AgentEvent::Done {}] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(code.as_deref(), Some("error_during_execution"));
}

#[test]
fn usage_is_the_difference_of_sums_by_model() {
    let mut parser = adapter(&[]).parser();
    parser.note_input();
    let events = feed(&mut *parser, &[RESULT, RESULT, AGAIN]);
    let shown: Vec<_> = events
        .iter()
        .map(|event| serde_json::to_string(event).expect("JSON"))
        .collect();
    assert_eq!(
        shown,
        [
            r#"{"type":"usage","model":"m","inputTokens":10,"outputTokens":2,"thoughtTokens":0,"cachedReadTokens":0,"cachedWriteTokens":0,"costMicros":500000}"#,
            r#"{"type":"usage","model":"m","inputTokens":5,"outputTokens":2,"thoughtTokens":0,"cachedReadTokens":0,"cachedWriteTokens":0,"costMicros":250000}"#,
            r#"{"type":"usage","model":"n","inputTokens":1,"outputTokens":0,"thoughtTokens":0,"cachedReadTokens":0,"cachedWriteTokens":0}"#,
        ]
    );
}

#[test]
fn what_we_asked_for_beats_what_it_says() {
    let mut parser = adapter(&[]).parser();
    let ended = parser.finish(EndReason::StoppedByHuman, Exit::with_code(0));
    assert_eq!(names(&ended), ["debug"]);
}

#[test]
fn a_process_that_ends_without_a_result_failed() {
    let mut parser = adapter(&[]).parser();
    parser.stderr_line(&Line::from("cannot be used with root privileges"));
    let events = parser.finish(EndReason::AgentFinished, Exit::with_code(1));
    let [AgentEvent::Error { message, code }, AgentEvent::Done {}] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(code.as_deref(), Some("exit"));
    assert_eq!(
        message,
        "the agent exited with code 1: cannot be used with root privileges"
    );
    let mut parser = adapter(&[]).parser();
    let events = parser.finish(EndReason::AgentFinished, Exit::with_code(0));
    assert!(events.is_empty(), "no result is no end");
}

#[test]
fn an_answer_too_long_to_keep_still_answers_its_call() {
    let mut parser = adapter(&[]).parser();
    let long = format!(
        r#"{{"type":"user","message":{{"role":"user","content":[{{"tool_use_id":"t1","type":"tool_result","content":"{}"}}]}}}}"#,
        "x".repeat(LINE_BYTES_MAX)
    );
    let events = parser.stdout_line(&Line::from(long.as_str()));
    assert_eq!(names(&events), ["toolResult", "debug"]);
    let [AgentEvent::ToolResult { id, .. }, _] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(id, "t1");
}

#[test]
fn a_sub_agent_and_the_program_itself_do_not_speak_for_the_agent() {
    let mut parser = adapter(&[]).parser();
    let lines = [
        r#"{"type":"assistant","parent_tool_use_id":"t1","message":{"content":[{"type":"text","text":"inner"},{"type":"tool_use","id":"t2","name":"Read","input":{}}]}}"#,
        r#"{"type":"assistant","error":"rate_limit","message":{"content":[{"type":"text","text":"API Error"}]}}"#,
        r#"{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user]"}]}}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"one"}]}}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"two"},{"type":"image"}]}}"#,
        r#"{"type":"stranger"}"#,
        "plain",
        "[1]",
    ];
    let events = feed(&mut *parser, &lines);
    let kinds = names(&events);
    assert_eq!(
        kinds,
        [
            "debug", "toolCall", "debug", "debug", "text", "text", "debug", "debug", "debug",
            "debug"
        ]
    );
    let second = "\n\ntwo".to_owned();
    assert_eq!(events[5], AgentEvent::Text { text: second });
}

proptest! {
    #[test]
    fn no_output_makes_a_parser_panic_or_end_twice(
        lines in vec(
            prop_oneof![
                vec(any::<u8>(), 0..100),
                Just(RESULT.as_bytes().to_vec()),
                Just(ABORTED.as_bytes().to_vec()),
                "\\{\"type\":\"(assistant|user|system|result)\"(,\"message\":(null|\\{\"content\":\\[(1|null)?\\]\\}))?\\}"
                    .prop_map(String::into_bytes),
            ],
            0..12,
        ),
        inputs in vec(any::<bool>(), 12),
    ) {
        let mut parser = adapter(&[]).parser();
        let mut events = Vec::new();
        for (line, is_input) in lines.iter().zip(inputs) {
            if is_input {
                parser.note_input();
            }
            events.extend(parser.stdout_line(&Line::from(line.as_slice())));
        }
        events.extend(parser.finish(EndReason::AgentFinished, Exit::with_code(0)));
        let done = events.iter().filter(|event| **event == AgentEvent::Done {}).count();
        prop_assert!(done <= 1);
    }
}
