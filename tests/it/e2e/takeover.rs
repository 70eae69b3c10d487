//! A space that a person takes over: what is shown of it, and what stays in it until it is handed
//! back.

use std::path::Path;

use super::rig::Fleet;

#[test]
fn what_a_person_has_is_shown_and_stays_until_it_is_handed_back() {
    let mut fleet = Fleet::plain();
    fleet.start();
    fleet.over(&fleet.dispatch("echo half >half.txt; say 'Half of it.'"));
    let tree = fleet
        .run(&["takeover", "room", "--reason", "to look at it"])
        .line();
    let shown = fleet.until("the space is shown as taken over", |fleet| {
        let spaces = fleet.run(&["get", "spaces"]).stdout;
        spaces.contains("TakenOver").then_some(spaces)
    });
    assert!(shown.contains("to look at it"), "{shown}");
    for command in ["why", "describe"] {
        let shown = fleet.run(&[command, "Space/room"]).expect(0).stdout;
        assert!(shown.contains("to look at it"), "{shown}");
    }
    // What the last run left uncommitted is nobody's change.
    let handed = fleet.run(&["handback", "room"]).line();
    assert!(
        handed.ends_with("The worktrees are as they were left."),
        "{handed}"
    );

    fleet.run(&["takeover", "room"]).expect(0);
    let mine = Path::new(&tree).join("mine\u{1b}[2J.txt");
    std::fs::write(&mine, "by hand").unwrap();
    fleet.remove("Space", "room");
    fleet.commit("Nobody needs the room");
    fleet.held("Space/room", "TakenOver");
    assert!(mine.exists(), "it is not removed under a person's hands");
    let handed = fleet.run(&["handback", "room"]).line();
    assert!(
        handed.contains("not committed: half.txt, mine [2J.txt"),
        "{handed}"
    );
    fleet.until("the space is gone", |fleet| {
        (fleet.run(&["get", "space", "room"]).code != 0).then_some(())
    });
    assert!(!mine.exists());
    assert_eq!(fleet.salvages().len(), 1);
}
