//! Claude Code whose model does not answer, or not to the end. By itself it would wait for ever.

use std::path::Path;
use std::time::Duration;

use homeostat::gateway::Timeouts;
use homeostat::model::run::{EndReason, ErrorFamily, Liveness, RunStatus};
use homeostat::store::RunView;
use homeostat::task::{Tracker, blocking};
use serde_json::json;

use super::{ANSWER_MICROS, BEGUN_MICROS, MODEL, adapter};
use crate::claude::programs;
use crate::e2e::turned::{Short, turn};
use crate::support::model_server::ModelServer;

/// One run of it with a model of that scenario; what its record says.
async fn run_of(program: &Path, server: &ModelServer, scenario: &str, short: Short) -> RunView {
    let object = |kind: &str, name: &str, workspace: Option<&str>, spec: serde_json::Value| {
        json!({
            "apiVersion": "homeostat/v1alpha1", "kind": kind,
            "metadata": {"name": name, "workspace": workspace}, "spec": spec,
        })
    };
    let shop = Some("shop");
    let agent = json!({"title": "Ada", "adapter": "claude", "model": MODEL});
    let dispatch = json!({"agent": "ada", "space": "room", "prompt": "Say something."});
    let fleet = [
        object("Fleet", "fleet", None, json!({"firstRevision": "run"})),
        object("Workspace", "shop", None, json!({"repos": []})),
        object(
            "Adapter",
            "claude",
            None,
            adapter(program, server, scenario),
        ),
        object("Agent", "ada", shop, agent),
        object(
            "Space",
            "room",
            shop,
            json!({"agents": ["ada"], "repos": []}),
        ),
        object("Dispatch", "once", shop, dispatch),
    ];
    let fleet = fleet.map(|mut object| {
        if object["metadata"]["workspace"].is_null() {
            object["metadata"] = json!({"name": object["metadata"]["name"]});
        }
        object.to_string()
    });
    let fleet = fleet.join("\n---\n");
    let turned = blocking("turn the loop", move || turn(&fleet, short));
    let (run, _said) = turned.await.unwrap();
    assert_eq!(homeostat::process::table::sweep(run.id).unwrap(), []);
    run
}

fn verdict(
    run: &RunView,
) -> (
    RunStatus,
    Option<Liveness>,
    Option<ErrorFamily>,
    Option<&str>,
) {
    let code = run.error_code.as_deref();
    (run.status, run.liveness, run.error_family, code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_model_falls_silent_is_ended() {
    let tracker = Tracker::new();
    for program in programs("a_run_whose_model_falls_silent_is_ended") {
        let server = ModelServer::start(&tracker).await;
        // Longer than its start takes on a busy machine.
        let short = Short {
            silence: Some(Duration::from_secs(10)),
            ..Short::default()
        };
        let run = run_of(&program, &server, "stall", short).await;
        let stalled = (Some(Liveness::Stalled), Some(ErrorFamily::SilentRun));
        let (status, liveness, family, code) = verdict(&run);
        assert_eq!((status, code), (RunStatus::Error, None), "{run:?}");
        assert_eq!((liveness, family), stalled, "{run:?}");
        assert_eq!(run.end_reason, Some(EndReason::Silence));
        let summary = run.summary.as_deref();
        assert_eq!(summary, Some("said nothing for 10s and was ended"));
        assert_eq!(run.usage.cost_micros, i64::try_from(BEGUN_MICROS).ok());
    }
}

/// So short that nothing here waits, and longer than a loopback takes on a busy machine.
const SHORT: Timeouts = Timeouts {
    first_byte: Duration::from_secs(3),
    whole: Duration::from_secs(3),
    idle: Duration::from_secs(3),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_does_not_begin_or_not_go_on_is_given_up() {
    let tracker = Tracker::new();
    let short = Short {
        timeouts: Some(SHORT),
        ..Short::default()
    };
    for program in programs("a_model_that_does_not_begin_or_not_go_on_is_given_up") {
        let server = ModelServer::start(&tracker).await;
        let run = run_of(&program, &server, "hang", short).await;
        let upstream = Some(ErrorFamily::TransientUpstream);
        let expected = (
            RunStatus::Error,
            Some(Liveness::Failed),
            upstream,
            Some("timeout_error"),
        );
        assert_eq!(verdict(&run), expected, "{run:?}");
        assert_eq!(run.end_reason, Some(EndReason::AgentFinished));
        let summary = run.summary.as_deref().unwrap();
        assert!(summary.contains("504"), "{summary}");
        // It may have cost something: nobody knows.
        assert_eq!(run.usage.cost_micros, None);

        // In the middle of an answer it is told, and asks for the whole in one piece: both cost.
        let run = run_of(&program, &server, "stall", short).await;
        let done = (RunStatus::Completed, Some(Liveness::Completed), None, None);
        assert_eq!(verdict(&run), done, "{run:?}");
        assert_eq!(run.summary.as_deref(), Some("A plain answer."));
        let both = i64::try_from(BEGUN_MICROS + ANSWER_MICROS).ok();
        assert_eq!(run.usage.cost_micros, both);
    }
}
