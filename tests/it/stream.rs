//! An agent's output, from its bytes on a pipe to the transcript and the outcome of its run.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use homeostat::adapter::for_spec;
use homeostat::adapter::lines::Lines;
use homeostat::dispatch::classify::{Facts, classify};
use homeostat::dispatch::transcript::Fold;
use homeostat::model::process::Exit;
use homeostat::model::run::EndReason;
use homeostat::model::spec::{AdapterSpec, AdapterType, OutputFormat};

/// Runs one recorded output through parser, fold and classification, and compares with the golden
/// beside it.
async fn check(name: &str, output: OutputFormat, exit: Exit) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stream/command");
    let bytes = std::fs::read(folder.join(name)).expect("a recorded output");
    let adapter = for_spec(&AdapterSpec {
        r#type: AdapterType::Command,
        command: "agent".to_owned(),
        args: Vec::new(),
        env: std::collections::BTreeMap::new(),
        output,
    });
    let mut parser = adapter.parser();
    let mut fold = Fold::new();
    let mut shown = String::new();
    let mut lines = Lines::new(bytes.as_slice());
    let mut events = Vec::new();
    while let Some(line) = lines.next().await.expect("bytes in memory") {
        events.extend(parser.stdout_line(&line));
    }
    events.extend(parser.finish(EndReason::AgentFinished, exit));
    for event in &events {
        fold.push(event);
        writeln!(shown, "event   {}", event.type_name()).expect("memory");
    }
    fold.close();
    for segment in fold.segments() {
        let json = serde_json::to_string(segment).expect("JSON");
        writeln!(shown, "segment {json}").expect("memory");
    }
    let reply = fold.reply_text();
    let outcome = classify(&Facts {
        end: EndReason::AgentFinished,
        exit,
        has_done: fold.has_done(),
        last_error: fold.last_error(),
        reply: &reply,
        has_changed_tree: false,
        silence: Duration::from_secs(900),
    });
    writeln!(shown, "usage   {:?}", fold.usage()).expect("memory");
    writeln!(shown, "reply   {reply:?}").expect("memory");
    writeln!(shown, "outcome {outcome:?}").expect("memory");
    let golden = folder.join(format!("{name}.out"));
    snapbox::assert_data_eq!(shown, snapbox::Data::read_from(&golden, None).raw());
}

#[tokio::test]
async fn an_agent_that_works() {
    check("fix.jsonl", OutputFormat::JsonLines, Exit::with_code(0)).await;
}

#[tokio::test]
async fn an_agent_that_lies() {
    check(
        "hostile.jsonl",
        OutputFormat::JsonLines,
        Exit::by_signal(11),
    )
    .await;
}

#[tokio::test]
async fn an_agent_whose_model_is_overloaded() {
    check(
        "overloaded.jsonl",
        OutputFormat::JsonLines,
        Exit::with_code(1),
    )
    .await;
}

#[tokio::test]
async fn a_program_that_prints() {
    check("plain.txt", OutputFormat::Text, Exit::with_code(0)).await;
}
