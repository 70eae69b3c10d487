//! The `command` adapter as a whole: what it launches, and what it makes of output.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::model::spec::OutputFormat;

fn spec(output: OutputFormat) -> AdapterSpec {
    AdapterSpec {
        prices: Vec::new(),
        r#type: AdapterType::Command,
        command: Some("/bin/sh".to_owned()),
        args: vec!["-c".to_owned(), "exit".to_owned()],
        env: BTreeMap::new(),
        output,
    }
}

fn env_of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// The three sources of variables outside the adapter.
#[derive(Default)]
struct Sources {
    git: BTreeMap<String, String>,
    caller: BTreeMap<String, String>,
    wake: BTreeMap<String, String>,
}

fn launch_in(
    adapter: &AdapterSpec,
    sources: &Sources,
    search_path: &str,
) -> Result<Launch, LaunchError> {
    for_spec(adapter).launch(&LaunchSpec {
        prompt: "Hello.",
        search_path,
        home: "/run/home",
        tmp: "/run/tmp",
        user: "agent",
        time_zone: "Europe/Zurich",
        git_env: &sources.git,
        caller_env: &sources.caller,
        wake_env: &sources.wake,
        model: None,
        effort: None,
        endpoint: None,
        session: Session::New(Uuid::nil()),
        config_dir: "/run/config",
        state_dir: "/conversation",
        mcp_servers: &[],
    })
}

fn launch(adapter: &AdapterSpec, sources: &Sources) -> Result<Launch, LaunchError> {
    launch_in(adapter, sources, "/usr/bin:/bin")
}

#[test]
fn a_launch_is_the_program_the_prompt_and_a_known_environment() {
    let launch = launch(&spec(OutputFormat::Text), &Sources::default()).expect("a launch");
    assert_eq!(launch.argv, ["/bin/sh", "-c", "exit"]);
    assert_eq!(launch.stdin, "Hello.");
    let env: Vec<_> = launch
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        env,
        [
            "GIT_TERMINAL_PROMPT=0",
            "HOME=/run/home",
            "LANG=C.UTF-8",
            "LOGNAME=agent",
            "PATH=/usr/bin:/bin",
            "TERM=dumb",
            "TMPDIR=/run/tmp",
            "TZ=Europe/Zurich",
            "USER=agent",
        ]
    );
    let debug = format!("{launch:?}");
    assert!(
        !debug.contains("Hello") && !debug.contains("Zurich"),
        "{debug}"
    );
}

#[test]
fn later_sources_win() {
    let mut adapter = spec(OutputFormat::Text);
    adapter.env = env_of(&[("D", "adapter"), ("C", "adapter"), ("LD_PRELOAD", "x.so")]);
    let sources = Sources {
        git: env_of(&[("GIT_AUTHOR_NAME", "git"), ("B", "git"), ("TERM", "git")]),
        caller: env_of(&[
            ("B", "caller"),
            ("C", "caller"),
            ("GIT_AUTHOR_NAME", "caller"),
            ("ANTHROPIC_API_KEY", "caller"),
        ]),
        wake: env_of(&[("D", "wake"), ("HOMEOSTAT_RUN_ID", "wake")]),
    };
    let env = launch(&adapter, &sources).expect("a launch").env;
    for (name, expected) in [
        ("TERM", "git"),
        ("B", "caller"),
        ("GIT_AUTHOR_NAME", "caller"),
        ("ANTHROPIC_API_KEY", "caller"),
        ("C", "adapter"),
        ("LD_PRELOAD", "x.so"),
        ("D", "wake"),
        ("HOMEOSTAT_RUN_ID", "wake"),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(expected), "{name}");
    }
}

#[test]
fn a_dispatch_can_set_no_variable_that_runs_code() {
    for name in [
        "PATH",
        "LD_PRELOAD",
        "ld_library_path",
        "DYLD_INSERT_LIBRARIES",
        "BASH_ENV",
        "Env",
        "BASH_FUNC_ls%%",
        "GIT_CONFIG_COUNT",
        "GIT_SSH_COMMAND",
        "NODE_OPTIONS",
        "PYTHONPATH",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
        "SSH_AUTH_SOCK",
    ] {
        let sources = Sources {
            caller: env_of(&[(name, "x")]),
            ..Sources::default()
        };
        let error = launch(&spec(OutputFormat::Text), &sources).expect_err(name);
        assert_eq!(error.code(), "variable_refused", "{name}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn the_daemons_names_and_what_is_no_variable_are_refused() {
    let of_caller = |name: &str, value: &str| {
        let sources = Sources {
            caller: env_of(&[(name, value)]),
            ..Sources::default()
        };
        launch(&spec(OutputFormat::Text), &sources).map_err(|error| error.code())
    };
    for (name, value, code) in [
        ("HOMEOSTAT_PREVIOUS_RUN_ID", "x", "variable_reserved"),
        ("homeostat_x", "x", "variable_reserved"),
        ("", "x", "not_representable"),
        ("A=B", "x", "not_representable"),
        ("A", "x\0", "not_representable"),
    ] {
        assert_eq!(of_caller(name, value).err(), Some(code), "{name:?}");
    }
    let mut adapter = spec(OutputFormat::Text);
    adapter.env = env_of(&[("HOMEOSTAT_RUN_ID", "x")]);
    let error = launch(&adapter, &Sources::default()).expect_err("reserved");
    assert_eq!(error.code(), "variable_reserved");
    adapter.env.clear();
    adapter.args = vec!["a\0b".to_owned()];
    let error = launch(&adapter, &Sources::default()).expect_err("no argument");
    assert_eq!(
        error.to_string(),
        "make argument 1, which has a NUL byte or no legal name"
    );
}

/// A directory with an executable `agent`, a plain file `data` and a directory `folder`.
fn programs() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().tempdir().expect("a directory");
    for (name, mode) in [("agent", 0o755), ("data", 0o644)] {
        let path = dir.path().join(name);
        std::fs::write(&path, "#!/bin/sh\n").expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }
    std::fs::create_dir(dir.path().join("folder")).expect("a directory");
    dir
}

#[test]
fn programs_are_found_by_path_or_on_the_search_path() {
    let (dir, other) = (programs(), programs());
    let at = |dir: &Path, name: &str| dir.join(name).to_string_lossy().into_owned();
    let (dir, other) = (dir.path(), other.path());
    std::fs::remove_file(other.join("agent")).expect("gone");
    std::fs::create_dir(other.join("agent")).expect("a directory in its place");
    let find = |command: &str, search_path: &str| {
        let mut adapter = spec(OutputFormat::Text);
        adapter.command = Some(command.to_owned());
        launch_in(&adapter, &Sources::default(), search_path)
            .map(|launch| launch.argv[0].clone())
            .map_err(|error| error.code())
    };
    let both = format!("{}:{}", other.display(), dir.display());
    let only = dir.display().to_string();
    let relative = format!(":.:bin:{only}");
    for (command, search_path, expected) in [
        (at(dir, "agent").as_str(), "/nowhere", Ok(at(dir, "agent"))),
        ("agent", both.as_str(), Ok(at(dir, "agent"))),
        ("agent", relative.as_str(), Ok(at(dir, "agent"))),
        (at(dir, "data").as_str(), "", Err("program_not_executable")),
        (
            at(dir, "folder").as_str(),
            "",
            Err("program_not_executable"),
        ),
        (at(dir, "none").as_str(), "", Err("program_not_found")),
        (at(dir, "data/agent").as_str(), "", Err("program_not_found")),
        ("data", only.as_str(), Err("program_not_executable")),
        ("none", both.as_str(), Err("program_not_found")),
        ("agent", "", Err("program_not_found")),
        ("", only.as_str(), Err("program_not_found")),
        ("./agent", only.as_str(), Err("program_relative")),
        ("bin/agent", only.as_str(), Err("program_relative")),
    ] {
        assert_eq!(
            find(command, search_path),
            expected,
            "{command} in {search_path}"
        );
    }
}

#[test]
fn only_an_agent_that_speaks_events_reports_usage() {
    let of = |output| for_spec(&spec(output)).capabilities();
    assert_eq!(of(OutputFormat::Text), Capabilities::default());
    let reports = Capabilities {
        reports_usage: true,
        reports_cost: true,
        ..Capabilities::default()
    };
    assert_eq!(of(OutputFormat::JsonLines), reports);
}

/// What a parser makes of lines on standard output and the end, as JSON lines.
fn parse(output: OutputFormat, lines: &[&str], end: EndReason, exit: Exit) -> Vec<String> {
    let mut parser = for_spec(&spec(output)).parser();
    let mut events: Vec<_> = lines
        .iter()
        .flat_map(|line| parser.stdout_line(&Line::from(*line)))
        .collect();
    events.extend(parser.finish(end, exit));
    assert!(
        parser
            .finish(EndReason::AgentFinished, Exit::default())
            .is_empty()
    );
    events
        .iter()
        .map(|event| serde_json::to_string(event).expect("an event"))
        .collect()
}

const DONE: &str = r#"{"type":"done"}"#;

#[test]
fn in_text_every_line_is_text_and_the_exit_is_the_end() {
    let hello = r#"{"type":"text","text":"hello\n"}"#;
    let exit_3 = r#"{"type":"error","message":"the agent exited with code 3","code":"exit"}"#;
    let killed = r#"{"type":"error","message":"the agent was killed by signal 9","code":"signal"}"#;
    let stopped = r#"{"type":"debug","message":"ended: stoppedByHuman"}"#;
    for (end, exit, expected) in [
        (EndReason::AgentFinished, Exit::with_code(0), vec![DONE]),
        (
            EndReason::AgentFinished,
            Exit::with_code(3),
            vec![exit_3, DONE],
        ),
        (
            EndReason::AgentFinished,
            Exit::by_signal(9),
            vec![killed, DONE],
        ),
        // Nobody saw it end: that is no end.
        (EndReason::AgentFinished, Exit::default(), vec![]),
        // We ended it: its exit says nothing.
        (
            EndReason::StoppedByHuman,
            Exit::by_signal(15),
            vec![stopped],
        ),
        (EndReason::StoppedByHuman, Exit::with_code(0), vec![stopped]),
    ] {
        let events = parse(OutputFormat::Text, &["hello\r"], end, exit);
        assert_eq!(events[0], hello);
        assert_eq!(events[1..], expected, "{end} {exit:?}");
    }
    let json = parse(
        OutputFormat::Text,
        &[DONE],
        EndReason::AgentFinished,
        Exit::with_code(0),
    );
    assert_eq!(json[0], r#"{"type":"text","text":"{\"type\":\"done\"}\n"}"#);
}

#[test]
fn in_json_lines_what_is_no_event_is_quoted_and_not_believed() {
    let lines = [
        "",
        r#"{"type":"text","text":"hi","unknown":1}"#,
        "plain words",
        r#"{"type":"sing","text":"la"}"#,
        r#"["type","text"]"#,
        r#"{"type":"sandboxViolation","operation":"open","source":"landlock"}"#,
        r#"{"type":"usage","inputTokens":-1}"#,
        r#"{"type":"usage","inputTokens":99999999999999999999}"#,
        r#"{"type":"usage","outputTokens":1000000000001}"#,
        r#"{"type":"usage","costMicros":-5}"#,
        r#"{"type":"usage","model":"m","inputTokens":7,"costMicros":12}"#,
        r#"{"type":"toolCall","id":"1","name":"sh","args":{"b":1,"a":2}}"#,
        r#"{"type":"toolResult","id":"1","output":"\u0000"}"#,
        r#"{"type":"debug","message":"note"}"#,
    ];
    let events = parse(
        OutputFormat::JsonLines,
        &lines,
        EndReason::AgentFinished,
        Exit::with_code(0),
    );
    snapbox::assert_data_eq!(
        events.join("\n") + "\n",
        snapbox::file!["../../tests/data/adapter/command-json.txt"].raw()
    );
}

#[test]
fn in_json_lines_the_agents_word_goes_before_its_exit() {
    let error = r#"{"type":"error","message":"busy","code":"overloaded_error"}"#;
    let usage = r#"{"type":"usage","inputTokens":1,"outputTokens":0,"thoughtTokens":0,"cachedReadTokens":0,"cachedWriteTokens":0}"#;
    let late = r#"{"type":"text","text":"ps"}"#;
    let late_note =
        r#"{"type":"debug","message":"after done: {\"type\":\"text\",\"text\":\"ps\"}"}"#;
    let again = r#"{"type":"debug","message":"after done: {\"type\":\"done\"}"}"#;
    let exited = r#"{"type":"error","message":"the agent exited with code 1","code":"exit"}"#;
    for (lines, expected) in [
        (vec![DONE], vec![DONE]),
        (
            vec![DONE, usage, late, DONE],
            vec![DONE, usage, late_note, again],
        ),
        (vec![error], vec![error, DONE]),
        (vec![error, DONE], vec![error, DONE]),
        (vec![], vec![exited, DONE]),
    ] {
        let events = parse(
            OutputFormat::JsonLines,
            &lines,
            EndReason::AgentFinished,
            Exit::with_code(1),
        );
        assert_eq!(events, expected, "{lines:?}");
    }
}

#[test]
fn what_is_too_long_or_no_text_is_kept_as_far_as_it_goes() {
    let mut parser = for_spec(&spec(OutputFormat::Text)).parser();
    let events = parser.stdout_line(&Line::from(&b"a\xffb"[..]));
    let text = "a\u{fffd}b\n".to_owned();
    assert_eq!(events, [AgentEvent::Text { text }]);

    let long = "x".repeat(lines::LINE_BYTES_MAX + 2);
    let events = parser.stdout_line(&Line::from(long.as_str()));
    let message = "a line of standard output was cut: 2 bytes of it were dropped".to_owned();
    assert_eq!(events[1..], [AgentEvent::Debug { message }]);

    let events = parser.stderr_line(&Line::from("é".repeat(5_000).as_str()));
    let [AgentEvent::Debug { message }] = &events[..] else {
        panic!("one note: {events:?}");
    };
    assert!(message.starts_with("stderr: é") && message.ends_with("é […]"));
    assert!(message.len() < 8_300, "{}", message.len());
}

proptest! {
    #[test]
    fn no_output_makes_a_parser_panic_or_lie(
        lines in vec(vec(any::<u8>(), 0..200), 0..20),
        output in select(vec![OutputFormat::Text, OutputFormat::JsonLines]),
    ) {
        let mut parser = for_spec(&spec(output)).parser();
        let mut events = Vec::new();
        for line in &lines {
            let line = Line::from(line.as_slice());
            events.extend(parser.stdout_line(&line));
            events.extend(parser.stderr_line(&line));
        }
        events.extend(parser.finish(EndReason::AgentFinished, Exit::with_code(0)));
        let of_type = |name| events.iter().filter(|event| event.type_name() == name).count();
        prop_assert_eq!(of_type("done"), 1);
        prop_assert_eq!(of_type("sandboxViolation"), 0);
    }
}
