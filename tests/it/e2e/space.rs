//! What a space gives its runs: repositories of its allowlist, and trees that one run writes.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::rig::{Fleet, SECRET};

#[test]
fn a_space_has_the_repositories_of_its_list_and_no_other() {
    let mut fleet = Fleet::plain();
    fleet.put("Space", "none", &json!({"agents": ["ada"], "repos": []}));
    fleet.put(
        "Space",
        "one",
        &json!({"agents": ["ada"], "repos": ["lib"]}),
    );
    fleet.put("Space", "all", &json!({"agents": ["ada"]}));
    fleet.commit("Open more rooms");
    fleet.start();
    for (space, here, trees) in [
        ("none", "", &[][..]),
        ("one", ".git README.md", &["lib"]),
        ("all", "", &["app", "lib"]),
    ] {
        let run = fleet
            .run(&[
                "dispatch",
                "--agent",
                "ada",
                "--space",
                space,
                "say \"$(echo $(ls -A))|$PWD\"",
            ])
            .line();
        let run = fleet.over(&run);
        let cwd = run["cwd"].as_str().unwrap();
        let expected = format!("{here}|{cwd}");
        let segments = fleet.json(&["transcript", run["id"].as_str().unwrap()]);
        assert_eq!(segments["segments"][0]["text"], expected, "{space}");
        let listed: Vec<_> = run["trees"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["repo"].as_str().unwrap())
            .collect();
        assert_eq!(listed, trees, "{space}");
        let repos = Path::new(cwd).ancestors().nth(2).unwrap().join("repos");
        assert!(repos.starts_with(fleet.path("data/workspaces")), "{cwd}");
        assert_eq!(directories(&repos), trees, "{space}");
        // One tree is where the run starts; with none or several it is a directory of the agent's.
        assert_eq!(
            Path::new(cwd).starts_with(&repos),
            trees.len() == 1,
            "{cwd}"
        );
    }
}

/// Names of the directories in it, in order.
fn directories(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().map(Result::unwrap);
    let entries = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn one_tree_is_written_by_one_run_at_a_time() {
    let mut fleet = Fleet::plain();
    fleet.put("Agent", "max", &json!({"title": "Max", "adapter": "told"}));
    fleet.put(
        "Space",
        "room",
        &json!({"agents": ["ada", "max"], "repos": ["app"]}),
    );
    fleet.commit("Add Max");
    fleet.start();
    let run = |agent: &str, side: &str, gate: &str| {
        let script = format!(
            "mkdir .alone || say Together; {}; rmdir .alone; say Alone",
            fleet.gate(gate)
        );
        let args = [
            "dispatch",
            "--agent",
            agent,
            "--space",
            "room",
            "--conversation",
            side,
            &script,
        ];
        fleet.run(&args).line()
    };
    let first = run("ada", "left", "first");
    fleet.running(&first);
    let second = run("max", "right", "second");
    fleet.held(&second, "WorktreeBusy");
    fleet.open("second");
    fleet.open("first");
    let (first, second) = (fleet.over(&first), fleet.over(&second));
    assert_eq!(
        (&first["summary"], &second["summary"]),
        (&"Alone".into(), &"Alone".into())
    );
    assert!(
        first["endedAt"].as_str() <= second["startedAt"].as_str(),
        "{first} {second}"
    );
}

#[test]
fn a_run_has_what_it_is_given_and_nothing_of_the_daemons() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let open = fleet.path("open").display().to_string();
    let run = fleet.dispatch(&format!(
        "env >{open}/env; ls -l /proc/self/fd >{open}/fds; id -u >{open}/uid; id -G >{open}/gids; \
         cat {}/homeostat.db >{open}/stolen; say Looked",
        fleet.path("data").display()
    ));
    fleet.over(&run);
    let env = fleet.left("env").unwrap();
    assert!(!env.contains(SECRET.0) && !env.contains(SECRET.1), "{env}");
    assert!(env.contains(&format!("HOMEOSTAT_RUN_ID={run}\n")), "{env}");
    assert!(env.contains("HOMEOSTAT_WAKE_REASON=followUp\n"), "{env}");
    // Three streams, the listing's file among them, and the directory that is listed.
    let fds = fleet.left("fds").unwrap();
    assert_eq!(
        fds.lines().filter(|line| line.contains(" -> ")).count(),
        4,
        "{fds}"
    );
    if rustix::process::geteuid().is_root() {
        assert_ne!(fleet.left("uid").unwrap().trim(), "0");
        let gids = fleet.left("gids").unwrap();
        assert!(!gids.split_whitespace().any(|gid| gid == "0"), "{gids}");
        assert_eq!(fleet.left("stolen").unwrap(), "");
    }
}

#[test]
fn a_changed_list_makes_and_removes_worktrees_and_a_new_room_begins_anew() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let first = fleet.over(&fleet.dispatch("note First"));
    let [tree, base] =
        ["path", "base"].map(|key| first["trees"][0][key].as_str().unwrap().to_owned());
    let repos = Path::new(&tree).parent().unwrap().to_owned();
    fleet.put(
        "Space",
        "room",
        &json!({"agents": ["ada"], "repos": ["lib"]}),
    );
    fleet.commit("Change the repository");
    fleet.until("the list is followed", |_| {
        (directories(&repos) == ["lib"]).then_some(())
    });
    let second = fleet.over(&fleet.dispatch("say Second"));
    assert_eq!(second["trees"][0]["repo"], "lib");

    // A room of the same name is another room, from where the source is now.
    fleet.remove("Space", "room");
    fleet.commit("Close the room");
    fleet.until("it is gone", |fleet| {
        (fleet.run(&["get", "space", "room"]).code == 1).then_some(())
    });
    fleet.git(
        "app",
        &["commit", "--quiet", "--allow-empty", "-m", "Go on"],
    );
    fleet.put(
        "Space",
        "room",
        &json!({"agents": ["ada"], "repos": ["app"]}),
    );
    fleet.commit("Open a room");
    fleet.until("it is there", |fleet| {
        (fleet.run(&["get", "space", "room"]).code == 0).then_some(())
    });
    let third = fleet.over(&fleet.dispatch("say \"$(git log -1 --format=%s)\""));
    assert_eq!(
        third["trees"][0]["base"],
        fleet.git("app", &["rev-parse", "HEAD"])
    );
    assert_ne!(third["trees"][0]["base"], base);
    assert_ne!(third["space"], first["space"]);
    assert_eq!(third["summary"], "Go on");
}

#[test]
fn an_agent_that_wrecks_its_tree_harms_nobody_else() {
    let mut fleet = Fleet::plain();
    fleet.put(
        "Space",
        "other",
        &json!({"agents": ["ada"], "repos": ["app"]}),
    );
    fleet.commit("Open another room");
    fleet.start();
    let pwned = fleet.path("open").join("pwned");
    let trap = format!("sh -c 'id -u >{}'", pwned.display());
    for wreck in [
        format!(
            "git config core.fsmonitor \"{trap}\"; git config core.hooksPath /tmp; echo new >file"
        ),
        "echo '* filter=trap' >.gitattributes; rm .git/index; echo x >.git/HEAD".to_owned(),
        "rm -rf .git; ln -s /etc .git".to_owned(),
        "rm -rf .git; mkfifo .git README.fifo".to_owned(),
        "cd ..; rm -rf app/* app/.git; echo precious >app/precious".to_owned(),
    ] {
        let run = fleet.over(&fleet.dispatch(&format!("{wreck}; say Wrecked")));
        assert_eq!(run["status"], "completed", "{wreck}: {run}");
    }
    let run = fleet.dispatch("say Here");
    fleet.over(&run);
    let args = [
        "dispatch",
        "--agent",
        "ada",
        "--space",
        "other",
        "--wait",
        "--timeout",
        "60s",
        "note Fine",
    ];
    fleet.run(&args).expect(0);
    fleet.remove("Space", "room");
    fleet.commit("Close the room");
    fleet.until("it is gone", |fleet| {
        (fleet.run(&["get", "space", "room"]).code == 1).then_some(())
    });
    let salvages = fleet.salvages();
    let [(repository, reference)] = &salvages[..] else {
        panic!("{salvages:?}");
    };
    let content = fleet.git(repository, &["show", &format!("{reference}:precious")]);
    assert_eq!(content, "precious");
    assert!(!pwned.exists(), "{:?}", fleet.left("pwned"));
}
