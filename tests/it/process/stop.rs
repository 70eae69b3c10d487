//! The end of a run, and what belongs to it.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use homeostat::model::id::RunId;
use homeostat::model::process::{Exit, ProcessIdentity};
use homeostat::process::cgroup::RunCgroup;
use homeostat::process::{
    Presence, StopError, StopTarget, cgroup, descendants, identify, is_alive, stop, sweep,
};
use homeostat::sandbox::{none, probe};
use rustix::process::Signal;

use super::rig::{GRACE, LONG, fresh_run, identity, kill, script, shim_binary, signal, wait_gone};

#[test]
fn an_agent_that_ignores_term_is_killed_after_its_grace() {
    let mut run = script("trap '' TERM; echo ready; while :; do sleep 1; done").launch();
    assert_eq!(run.line(), "ready");
    let report = run.stop(GRACE).unwrap();
    assert!(report.was_running);
    assert!(report.killed.is_empty(), "the shim did it: {report:?}");
    let exited = run.exited();
    assert_eq!((exited.exit, exited.left), (Exit::by_signal(9), 0));
}

#[test]
fn an_agent_that_heeds_term_ends_in_its_own_way() {
    let mut setup = script("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 1; done");
    setup.plan.grace = LONG;
    let mut run = setup.launch();
    assert_eq!(run.line(), "ready");
    let report = run.stop(LONG).unwrap();
    assert!(report.killed.is_empty(), "{report:?}");
    let (output, exited) = run.finish();
    assert_eq!((output.as_str(), exited.exit.code), ("bye\n", Some(3)));
}

#[test]
fn a_stop_at_once_kills_from_outside() {
    let mut setup = script("trap '' TERM; echo ready; while :; do sleep 1; done");
    setup.plan.grace = LONG;
    let mut run = setup.launch();
    assert_eq!(run.line(), "ready");
    let report = run.stop(Duration::ZERO).unwrap();
    assert!(!report.killed.is_empty());
    assert_eq!(
        run.exited().exit.signal,
        Some(9),
        "the shim was left to report it"
    );
}

#[test]
fn no_agent_outlives_its_daemon() {
    let text = "trap '' TERM; setsid sleep 1000 & echo $!; echo $$; while :; do sleep 1; done";
    let mut run = script(text).launch();
    let (daemon, agent) = (run.named(), run.named());
    let shim = run.shim().clone();
    drop(run.running.take());
    for process in [&shim, &daemon, &agent] {
        wait_gone(process);
    }
    // The next start reaps what was let go of.
    drop(none::start(shim_binary()).unwrap());
    assert_ne!(identify(shim.pid).unwrap(), Some(shim));
}

#[test]
fn a_shim_that_is_stopped_is_ended_all_the_same() {
    let mut run = script("echo ready; exec sleep 1000").launch();
    assert_eq!(run.line(), "ready");
    // Its agent, being the same user, could do this.
    signal(run.shim(), Signal::STOP);
    let report = run.stop(GRACE).unwrap();
    assert!(
        report.was_running && report.killed.contains(run.shim()),
        "{report:?}"
    );
    assert_eq!(
        run.stop(GRACE).unwrap().killed,
        [],
        "nothing is left for a second stop"
    );
}

#[test]
fn who_keeps_forking_is_ended() {
    let text = "keep() { trap '' TERM; while :; do setsid sh -c 'exec sleep 1' & sleep 0; done; }; \
                for i in 1 2 3; do keep & done; echo ready; wait";
    for kill_shim in [false, true] {
        let mut run = script(text).launch();
        assert_eq!(run.line(), "ready");
        if kill_shim {
            kill(run.shim());
        }
        drop(run.stop(GRACE).unwrap());
        assert_eq!(sweep(run.target.run).unwrap(), []);
    }
}

/// In a mount namespace whose `/proc` shows nothing, by the test below.
#[test]
#[ignore = "needs a /proc that shows nothing"]
fn without_proc_nothing_is_said() {
    if identify(1).is_ok() {
        return;
    }
    let somebody = ProcessIdentity {
        pid: 1,
        start_time: 1,
        boot_id: "4".repeat(36),
    };
    assert_eq!(is_alive(&somebody), Presence::Unknown);
    let target = StopTarget {
        identity: None,
        run: RunId::derived(&["any"]),
        cgroup: None,
    };
    let refusal = stop(&target, Duration::ZERO);
    assert!(matches!(refusal, Err(StopError::Look(_))), "{refusal:?}");
    writeln!(io::stdout(), "nothing was said").unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this test again, elsewhere")]
fn could_not_look_is_not_gone() {
    let script = "mount -t tmpfs none /proc && exec \"$0\" --ignored --exact --nocapture \"$1\"";
    let own = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(own)
        .arg("process::stop::without_proc_nothing_is_said")
        .output();
    match output {
        Ok(output)
            if String::from_utf8_lossy(&output.stderr).contains("Operation not permitted") =>
        {
            eprintln!("SKIP could_not_look_is_not_gone: no mount namespace for us");
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("nothing was said"), "{output:?}");
        }
        Err(error) => eprintln!("SKIP could_not_look_is_not_gone: no unshare: {error}"),
    }
}

#[test]
fn when_the_shim_is_killed_the_rest_is_found_by_its_mark() {
    let text = "setsid sh -c 'sleep 1000 & echo $!'; echo $$; exec sleep 1000";
    let mut run = script(text).launch();
    let (daemon, agent) = (run.named(), run.named());
    assert!(descendants(run.shim()).unwrap().contains(&daemon));
    kill(run.shim());
    // The kernel takes the agent along, and nobody the daemon.
    wait_gone(&agent);
    assert_eq!(is_alive(&daemon), Presence::Alive);
    assert_eq!(
        sweep(run.target.run).unwrap().as_slice(),
        std::slice::from_ref(&daemon)
    );

    let report = run.stop(GRACE).unwrap();
    assert_eq!(
        (report.was_running, report.killed),
        (false, vec![daemon.clone()])
    );
    assert_eq!(is_alive(&daemon), Presence::Gone);
    assert_eq!(
        run.stop(GRACE).unwrap().killed,
        [],
        "twice is as good as once"
    );
}

#[test]
fn a_control_group_finds_what_hides_from_everything_else() {
    let layers = probe(identity());
    let mut setup = script("env -i setsid sh -c 'sleep 1000 & echo $!'; exec sleep 1000");
    setup.plan.cgroup = layers.cgroup_of(setup.plan.run);
    let Some(group) = setup.plan.cgroup.clone() else {
        eprintln!(
            "SKIP a_control_group_finds_what_hides_from_everything_else: no place for them on this host"
        );
        return;
    };
    let mut run = setup.launch();
    let hidden = run.named();
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap();
    assert!(
        members.lines().any(|pid| pid == hidden.pid.to_string()),
        "{members}"
    );
    kill(run.shim());
    assert!(!sweep(run.target.run).unwrap().contains(&hidden));

    let report = run.stop(GRACE).unwrap();
    assert!(report.killed.contains(&hidden), "{report:?}");
    assert_eq!(is_alive(&hidden), Presence::Gone);
    assert!(!group.exists());
    assert_eq!(
        cgroup::find_parent(),
        layers.cgroup_parent,
        "and no trial is left"
    );
}

#[test]
fn a_control_group_is_killed_whole() {
    let mut setup = script("setsid sh -c 'sleep 1000 & echo $!'; exec sleep 1000");
    setup.plan.cgroup = probe(identity()).cgroup_of(setup.plan.run);
    let Some(path) = setup.plan.cgroup.clone() else {
        eprintln!("SKIP a_control_group_is_killed_whole: no place for them on this host");
        return;
    };
    let group = RunCgroup::stored(&path, setup.plan.run).unwrap();
    assert!(
        group.wait_empty(LONG).unwrap(),
        "what is not there is empty"
    );
    let mut run = setup.launch();
    let daemon = run.named();
    assert!(group.is_populated().unwrap());
    assert!(!group.wait_empty(Duration::from_millis(10)).unwrap());
    assert!(group.remove().is_err(), "it is in use");
    group.kill().unwrap();
    assert!(group.wait_empty(LONG).unwrap());
    for process in [&daemon, run.shim()] {
        assert_eq!(is_alive(process), Presence::Gone);
    }
    group.remove().unwrap();
    group.remove().unwrap();
    group.kill().unwrap();
}

#[test]
fn a_reused_pid_is_never_signalled() {
    let mut run = script("echo ready; exec sleep 1000").launch();
    assert_eq!(run.line(), "ready");
    let agent = identify(run.running().child_pid).unwrap().unwrap();
    let impostors = [
        ProcessIdentity {
            start_time: agent.start_time - 1,
            ..agent.clone()
        },
        ProcessIdentity {
            boot_id: "4".repeat(36),
            ..agent.clone()
        },
    ];
    for impostor in impostors {
        let target = StopTarget {
            identity: Some(impostor),
            run: fresh_run(),
            cgroup: None,
        };
        let report = stop(&target, GRACE).unwrap();
        assert_eq!((report.was_running, report.killed), (false, vec![]));
        assert_eq!(is_alive(&agent), Presence::Alive);
    }
    assert_eq!(
        descendants(&ProcessIdentity {
            start_time: 0,
            ..agent
        })
        .unwrap(),
        []
    );
}

#[test]
fn we_do_not_stop_ourselves() {
    let own = identify(std::process::id()).unwrap();
    let target = StopTarget {
        identity: own,
        run: fresh_run(),
        cgroup: None,
    };
    let refusal = stop(&target, Duration::ZERO);
    assert!(
        matches!(refusal, Err(StopError::Ourselves(_))),
        "{refusal:?}"
    );
    let target = StopTarget {
        identity: None,
        cgroup: Some(PathBuf::from("/sys/fs/cgroup")),
        ..target
    };
    let refusal = stop(&target, Duration::ZERO);
    assert!(matches!(refusal, Err(StopError::Cgroup(_))), "{refusal:?}");
}
