//! Sources on a real file system: what a snapshot holds, and what a watch notices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use homeostat::git::command::Git;
use homeostat::source::{Snapshot, Source, SourceError, WatchOptions, Watcher, Watching};
use tempfile::TempDir;

fn yaml(path: &str) -> bool {
    path.ends_with(".yaml")
}

fn directory(root: &Path) -> Source {
    within(root, "")
}

fn within(root: &Path, subdirectory: &str) -> Source {
    Source::Directory {
        root: root.to_owned(),
        subdirectory: subdirectory.to_owned(),
    }
}

fn snapshot(source: &Source) -> Snapshot {
    source.snapshot(yaml).unwrap()
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot
        .files
        .iter()
        .map(|(path, _)| path.as_str())
        .collect()
}

/// Replaces a file as editors do.
fn save(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Points a link somewhere else, as atomic updaters do.
fn swap(link: &Path, target: &str) {
    let new = link.with_file_name("swap.new");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

/// A watched source.
struct Watched {
    source: Source,
    hints: Receiver<()>,
    watcher: Watcher,
}

impl Watched {
    /// By events: no scan comes due while the test runs.
    fn by_events(source: Source) -> Self {
        Self::start(source, Duration::from_secs(3_600))
    }

    fn start(source: Source, scan_every: Duration) -> Self {
        let (send, hints) = mpsc::channel();
        let options = WatchOptions {
            scan_every,
            poll_every: scan_every,
        };
        // The receiver is gone when the test is over.
        let hint = move || send.send(()).unwrap_or_default();
        let watcher = Watcher::start(source.clone(), yaml, options, hint).unwrap();
        Self {
            source,
            hints,
            watcher,
        }
    }

    /// Waits for hints until the source is in the wanted state.
    fn until(&self, what: &str, reached: impl Fn(Result<Snapshot, SourceError>) -> bool) {
        loop {
            let hint = self.hints.recv_timeout(Duration::from_secs(20));
            hint.unwrap_or_else(|_| panic!("no hint: {what}"));
            if reached(self.source.snapshot(yaml)) {
                return;
            }
        }
    }

    fn until_text(&self, text: &str) {
        self.until(text, |snapshot| {
            snapshot.is_ok_and(|it| it.files.iter().any(|file| file.1 == text.as_bytes()))
        });
    }
}

fn git(directory: &Path, arguments: &[&str]) {
    let run = Git::new(directory, arguments[0]).args(&arguments[1..]);
    let run = run
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        .run();
    run.unwrap();
}

fn commit(repository: &Path, path: &str, text: &str) {
    let path = repository.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    git(repository, &["add", "-A"]);
    git(repository, &["commit", "-q", "-m", "change"]);
}

fn repository() -> (TempDir, PathBuf) {
    let root = TempDir::new().unwrap();
    let path = root.path().join("repo");
    fs::create_dir(&path).unwrap();
    git(&path, &["init", "-q", "-b", "main"]);
    commit(&path, "conf/a.yaml", "one");
    (root, path)
}

#[test]
fn a_directory_is_its_files_and_nothing_outside_of_it() {
    let root = TempDir::new().unwrap();
    let (conf, outside) = (root.path().join("conf"), root.path().join("outside"));
    for directory in ["conf/teams", "conf/.git", "outside"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    for file in [
        "conf/teams/b.yaml",
        "conf/a.yaml",
        "conf/notes.txt",
        "conf/.git/x.yaml",
    ] {
        fs::write(root.path().join(file), file).unwrap();
    }
    fs::write(outside.join("secret.yaml"), "secret").unwrap();
    symlink(outside.join("secret.yaml"), conf.join("secret.yaml")).unwrap();
    symlink("../outside", conf.join("outside")).unwrap();
    symlink("nowhere", conf.join("dead.yaml")).unwrap();
    symlink(".", conf.join("circle")).unwrap();
    symlink("teams/b.yaml", conf.join("linked.yaml")).unwrap();
    let source = directory(&conf);
    let before = snapshot(&source);
    assert_eq!(names(&before), ["a.yaml", "linked.yaml", "teams/b.yaml"]);
    assert_eq!(before.author, None);

    // Content counts, not the state of its file.
    save(&conf.join("a.yaml"), "conf/a.yaml");
    assert_eq!(snapshot(&source).revision, before.revision);
    save(&conf.join("a.yaml"), "other");
    assert_ne!(snapshot(&source).revision, before.revision);
    assert!(before.revision.as_str().starts_with("sha256:"));
}

#[test]
fn a_source_that_is_too_large_or_absent_is_an_error() {
    let root = TempDir::new().unwrap();
    let source = directory(root.path());
    let file = fs::File::create(root.path().join("a.yaml")).unwrap();
    file.set_len(1 << 30).unwrap();
    let error = source.snapshot(yaml).unwrap_err();
    assert!(matches!(error, SourceError::TooLarge { .. }), "{error}");
    let absent = directory(&root.path().join("absent"));
    let error = absent.snapshot(yaml).unwrap_err();
    assert!(matches!(error, SourceError::Read { .. }), "{error}");
}

#[test]
fn a_git_source_is_a_commit_whatever_the_checkout_holds() {
    let (_root, repository) = repository();
    commit(&repository, ".hidden/b.yaml", "hidden");
    fs::write(repository.join("conf/a.yaml"), "not committed").unwrap();
    let source = |reference: &str, subdirectory: &str| Source::Git {
        repository: repository.clone(),
        reference: reference.to_owned(),
        subdirectory: subdirectory.to_owned(),
    };
    let whole = snapshot(&source("main", ""));
    assert_eq!(names(&whole), ["conf/a.yaml"]);
    assert_eq!(whole.files[0].1, b"one");
    assert_eq!(whole.author.as_ref().unwrap().email, "ada@example.com");
    assert_eq!(whole.revision.as_str().len(), 40);
    // Paths start at the root of the repository, and only what is below may be hidden.
    assert_eq!(names(&snapshot(&source("HEAD", "conf/"))), ["conf/a.yaml"]);
    let hidden = names(&snapshot(&source("HEAD", ".hidden"))).join(" ");
    assert_eq!(hidden, ".hidden/b.yaml");
    let error = source("HEAD", "absent").snapshot(yaml).unwrap_err();
    assert!(error.to_string().contains("no such directory"), "{error}");
    let pinned = source(whole.revision.as_str(), "");
    assert_eq!(snapshot(&pinned), whole);
    let error = source("absent", "").snapshot(yaml).unwrap_err();
    assert!(
        matches!(error, SourceError::NoSuchReference { .. }),
        "{error}"
    );
}

#[test]
fn a_subdirectory_of_a_directory_is_all_that_is_read() {
    let root = TempDir::new().unwrap();
    for file in ["a.yaml", "teams/shop/b.yaml", "teams/other/c.yaml"] {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    let shop = within(root.path(), "teams/shop");
    assert_eq!(names(&snapshot(&shop)), ["teams/shop/b.yaml"]);
    symlink("teams/shop", root.path().join("linked")).unwrap();
    let linked = within(root.path(), "linked");
    assert_eq!(names(&snapshot(&linked)), ["linked/b.yaml"]);
    let error = within(root.path(), "absent").snapshot(yaml).unwrap_err();
    assert!(error.to_string().contains("/absent"), "{error}");
    symlink("/", root.path().join("out")).unwrap();
    let error = within(root.path(), "out").snapshot(yaml).unwrap_err();
    assert!(matches!(error, SourceError::Outside { .. }), "{error}");
}

#[test]
fn a_subdirectory_that_comes_goes_or_is_swapped_is_noticed() {
    let root = TempDir::new().unwrap();
    let watched = Watched::by_events(within(root.path(), "teams/shop"));
    let shop = root.path().join("teams/shop");
    fs::create_dir_all(&shop).unwrap();
    fs::write(shop.join("a.yaml"), "made").unwrap();
    watched.until_text("made");
    fs::remove_dir_all(root.path().join("teams")).unwrap();
    watched.until("vanished", |snapshot| snapshot.is_err());
    // As a mounted volume is updated: the way to the subdirectory changes, not the subdirectory.
    for version in ["..v1", "..v2"] {
        let shop = root.path().join(version).join("shop");
        fs::create_dir_all(&shop).unwrap();
        fs::write(shop.join("a.yaml"), version).unwrap();
    }
    symlink("..v1", root.path().join("..data")).unwrap();
    symlink("..data", root.path().join("teams")).unwrap();
    watched.until_text("..v1");
    swap(&root.path().join("..data"), "..v2");
    watched.until_text("..v2");
}

#[test]
fn saving_by_rename_is_noticed_every_time() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("a.yaml");
    fs::write(&file, "0").unwrap();
    let watched = Watched::by_events(directory(root.path()));
    assert_eq!(watched.watcher.watching(), Watching::Events);
    for text in ["1", "2", "3"] {
        save(&file, text);
        watched.until_text(text);
    }
    fs::write(&file, "in place").unwrap();
    watched.until_text("in place");
    fs::remove_file(&file).unwrap();
    watched.until("removal", |it| it.is_ok_and(|it| it.files.is_empty()));
}

#[test]
fn files_in_new_directories_are_noticed() {
    let root = TempDir::new().unwrap();
    let watched = Watched::by_events(directory(root.path()));
    // Many times: a directory may come at each moment of the watcher's look.
    for round in 0..50 {
        let deep = root.path().join(format!("{round}/one/two/three"));
        fs::create_dir_all(&deep).unwrap();
        let text = format!("{round} first");
        fs::write(deep.join("a.yaml"), &text).unwrap();
        watched.until_text(&text);
        let text = format!("{round} second");
        save(&deep.join("a.yaml"), &text);
        watched.until_text(&text);
    }
}

#[test]
fn a_swapped_data_link_is_noticed() {
    let root = TempDir::new().unwrap();
    for version in ["..v1", "..v2"] {
        fs::create_dir(root.path().join(version)).unwrap();
        fs::write(root.path().join(version).join("a.yaml"), version).unwrap();
    }
    symlink("..v1", root.path().join("..data")).unwrap();
    symlink("..data/a.yaml", root.path().join("a.yaml")).unwrap();
    let source = directory(root.path());
    assert_eq!(snapshot(&source).files[0].1, b"..v1");
    let watched = Watched::by_events(source);
    swap(&root.path().join("..data"), "..v2");
    watched.until_text("..v2");
}

#[test]
fn a_root_that_is_a_link_may_be_swapped() {
    let root = TempDir::new().unwrap();
    for version in ["v1", "v2"] {
        fs::create_dir(root.path().join(version)).unwrap();
        fs::write(root.path().join(version).join("a.yaml"), version).unwrap();
    }
    let link = root.path().join("current");
    symlink("v1", &link).unwrap();
    let watched = Watched::by_events(directory(&link));
    swap(&link, "v2");
    watched.until_text("v2");
    save(&root.path().join("v2/a.yaml"), "edited");
    watched.until_text("edited");
}

#[test]
fn a_root_that_vanishes_and_comes_back_is_noticed() {
    let root = TempDir::new().unwrap();
    let conf = root.path().join("conf");
    fs::create_dir(&conf).unwrap();
    fs::write(conf.join("a.yaml"), "before").unwrap();
    let watched = Watched::by_events(directory(&conf));
    fs::remove_dir_all(&conf).unwrap();
    watched.until("vanished", |snapshot| snapshot.is_err());
    fs::create_dir(&conf).unwrap();
    fs::write(conf.join("a.yaml"), "after").unwrap();
    watched.until_text("after");
    save(&conf.join("a.yaml"), "and again");
    watched.until_text("and again");
}

#[test]
fn a_commit_moves_the_ref_and_is_noticed() {
    let (_root, repository) = repository();
    let source = Source::Git {
        repository: repository.clone(),
        reference: "main".to_owned(),
        subdirectory: String::new(),
    };
    let watched = Watched::by_events(source);
    commit(&repository, "conf/a.yaml", "two");
    watched.until_text("two");
    git(&repository, &["pack-refs", "--all"]);
    commit(&repository, "conf/a.yaml", "three");
    watched.until_text("three");
}

#[test]
fn what_no_event_tells_is_found_by_the_scan() {
    let root = TempDir::new().unwrap();
    let hidden = root.path().join("..v1");
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join("a.yaml"), "one").unwrap();
    symlink("..v1/a.yaml", root.path().join("a.yaml")).unwrap();
    let source = directory(root.path());
    let watched = Watched::start(source, Duration::from_millis(20));
    fs::write(hidden.join("a.yaml"), "longer").unwrap();
    watched.until_text("longer");
}

#[test]
fn reading_a_source_is_no_change() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("a.yaml"), "one").unwrap();
    let watched = Watched::by_events(directory(root.path()));
    save(&root.path().join("a.yaml"), "two");
    watched.until_text("two");
    // One save is a handful of events. If reading made more, this would never come to rest.
    let mut hints = 0;
    while watched
        .hints
        .recv_timeout(Duration::from_millis(300))
        .is_ok()
    {
        snapshot(&watched.source);
        hints += 1;
        assert!(hints < 20, "reading leads to reading");
    }
}
