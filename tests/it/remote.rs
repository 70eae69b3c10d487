//! Remote sources: real remotes on this host, reached by file, ssh and http as the operator's git
//! reaches them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use homeostat::git::command::Git;
use homeostat::git::remote::{MIRRORED, Remote, RemoteError};
use homeostat::model::remote::RemoteUrl;
use homeostat::source::{Snapshot, Source, SourceError};
use tempfile::TempDir;

use crate::support::git_http::GitServer;

/// `up` is the remote, `home` the operator's, `mirror` ours.
struct Rig {
    root: TempDir,
}

impl Rig {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let rig = Self { root };
        for directory in ["up", "home"] {
            fs::create_dir(rig.path(directory)).unwrap();
        }
        rig.git(&["init", "-q", "-b", "main"]);
        rig.commit("one");
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn git(&self, arguments: &[&str]) -> String {
        let run = Git::new(&self.path("up"), arguments[0]).args(&arguments[1..]);
        let run = run
            .env("GIT_AUTHOR_NAME", "Ada")
            .env("GIT_AUTHOR_EMAIL", "ada@example.com")
            .env("GIT_COMMITTER_NAME", "Ada")
            .env("GIT_COMMITTER_EMAIL", "ada@example.com")
            .run();
        run.unwrap().line().unwrap_or_default().to_owned()
    }

    /// Commits a file of that content.
    fn commit(&self, text: &str) {
        fs::create_dir_all(self.path("up/conf")).unwrap();
        fs::write(self.path("up/conf/a.yaml"), text).unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", text]);
    }

    fn file_url(&self) -> String {
        format!("file://{}", self.path("up").display())
    }

    fn source(&self, url: &str, reference: &str) -> Source {
        let path = "/usr/local/bin:/usr/bin:/bin";
        let variables = [("HOME", self.path("home").into()), ("PATH", path.into())];
        let variables = variables.map(|(name, value): (_, OsString)| (OsString::from(name), value));
        Source::Remote {
            remote: Remote {
                url: RemoteUrl::parse(url).unwrap(),
                reference: reference.to_owned(),
                mirror: self.path("mirror"),
                environment: BTreeMap::from(variables),
            },
            subdirectory: "conf".to_owned(),
        }
    }

    fn mirrored(&self, arguments: &[&str]) -> String {
        let run = Git::new(&self.path("mirror"), arguments[0]).args(&arguments[1..]);
        run.run().unwrap().line().unwrap().to_owned()
    }
}

fn read(source: &Source) -> Result<Snapshot, SourceError> {
    source.snapshot(|path| path.ends_with(".yaml"))
}

#[track_caller]
fn holds(source: &Source, text: &str) -> String {
    let snapshot = read(source).unwrap();
    let files = [("conf/a.yaml".to_owned(), text.as_bytes().to_vec())];
    assert_eq!(snapshot.files, files);
    snapshot.revision.to_string()
}

#[track_caller]
fn fails(source: &Source) -> String {
    let mut text = String::new();
    let error = read(source).unwrap_err();
    assert!(matches!(error, SourceError::Remote(_)), "{error}");
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
fn a_branch_is_followed_wherever_it_goes() {
    let rig = Rig::new();
    let source = rig.source(&rig.file_url(), "main");
    let revision = holds(&source, "one");
    assert_eq!(revision, rig.git(&["rev-parse", "HEAD"]));
    rig.commit("two");
    holds(&source, "two");
    holds(&source, "two");
    // Backwards, and to a history of its own.
    rig.git(&["reset", "-q", "--hard", "HEAD~1"]);
    assert_eq!(holds(&source, "one"), revision);
    rig.git(&["checkout", "-q", "--orphan", "other"]);
    rig.commit("other");
    rig.git(&["branch", "-q", "-f", "main"]);
    holds(&source, "other");
    rig.git(&["branch", "-q", "-D", "main"]);
    let error = read(&source).unwrap_err();
    assert!(
        matches!(error, SourceError::Remote(RemoteError::NoReference { .. })),
        "{error}"
    );
    rig.git(&["branch", "-q", "main"]);
    holds(&source, "other");
}

#[test]
fn a_mirror_holds_one_commit_of_one_branch() {
    let rig = Rig::new();
    for text in ["two", "three"] {
        rig.commit(text);
    }
    rig.git(&["branch", "-q", "aside"]);
    rig.git(&["tag", "-a", "-m", "noted", "noted"]);
    // A name that ends as the one that is asked for.
    rig.git(&["update-ref", "refs/other/refs/heads/main", "HEAD~1"]);
    let source = rig.source(&rig.file_url(), "main");
    holds(&source, "three");
    assert_eq!(
        rig.mirrored(&["for-each-ref", "--format=%(refname)"]),
        MIRRORED
    );
    assert_eq!(rig.mirrored(&["rev-list", "--count", "--all"]), "1");
    let mode = fs::metadata(rig.path("mirror")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o077, 0);
    // An annotated tag is the commit that it is about; `HEAD` is what the remote says.
    for reference in ["refs/tags/noted", "HEAD"] {
        holds(&rig.source(&rig.file_url(), reference), "three");
    }
}

#[test]
fn a_mirror_does_not_grow_for_ever() {
    let rig = Rig::new();
    let source = rig.source(&rig.file_url(), "main");
    let mut most = 0;
    for round in 0..60 {
        let text = round.to_string();
        rig.commit(&text);
        holds(&source, &text);
        let packs = fs::read_dir(rig.path("mirror/objects/pack")).unwrap();
        let names = packs.map(|it| it.unwrap().path());
        let count = names.filter(|it| it.extension().is_some_and(|it| it == "pack"));
        let count = count.count();
        assert!(count <= 51, "{count}");
        if count < most {
            return;
        }
        most = count;
    }
    panic!("never packed anew: {most}");
}

#[test]
fn a_remote_that_is_away_is_an_error_until_it_is_back() {
    let rig = Rig::new();
    let source = rig.source(&rig.file_url(), "main");
    holds(&source, "one");
    fs::rename(rig.path("up"), rig.path("away")).unwrap();
    let said = fails(&source);
    assert!(
        said.contains("fetch refs/heads/main from file://"),
        "{said}"
    );
    fs::rename(rig.path("away"), rig.path("up")).unwrap();
    rig.commit("two");
    holds(&source, "two");
}

#[test]
fn what_a_killed_fetch_left_behind_is_not_in_the_way() {
    let rig = Rig::new();
    let source = rig.source(&rig.file_url(), "main");
    holds(&source, "one");
    for lock in ["shallow.lock", "refs/homeostat/source.lock"] {
        fs::write(rig.path("mirror").join(lock), "").unwrap();
        rig.commit(lock);
        holds(&source, lock);
    }
    // Half a mirror is none.
    fs::remove_file(rig.path("mirror/HEAD")).unwrap();
    holds(&source, "refs/homeostat/source.lock");
}

#[test]
fn the_operators_own_ssh_is_used() {
    let rig = Rig::new();
    let ssh = rig.path("home/ssh");
    // What the other side would do: run what the last argument says.
    let script = "#!/bin/sh\nfor command; do :; done\necho \"$@\" >>\"$HOME/asked\"\nexec sh -c \"$command\"\n";
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let config = format!("[core]\n\tsshCommand = {}\n", ssh.display());
    fs::write(rig.path("home/.gitconfig"), config).unwrap();
    let url = format!("ssh://git@host.invalid{}", rig.path("up").display());
    holds(&rig.source(&url, "main"), "one");
    let asked = fs::read_to_string(rig.path("home/asked")).unwrap();
    assert!(asked.contains("git@host.invalid"), "{asked}");
}

#[test]
fn the_operators_own_credentials_are_used_and_nobody_is_asked() {
    let rig = Rig::new();
    // ann:word
    let server = GitServer::start(rig.root.path(), "YW5uOndvcmQ=");
    let source = rig.source(&server.url("", "up"), "main");
    let said = fails(&source);
    assert!(said.contains("could not read Username"), "{said}");
    let helper =
        "[credential]\n\thelper = \"!f() { echo username=ann; echo password=word; }; f\"\n";
    fs::write(rig.path("home/.gitconfig"), helper).unwrap();
    holds(&source, "one");
}

#[test]
fn a_password_in_the_address_is_used_and_not_told() {
    let rig = Rig::new();
    // ann:wo:rd
    let server = GitServer::start(rig.root.path(), "YW5uOndvOnJk");
    let helper = "[credential]\n\thelper = \"!f() { echo username=x; echo password=x; }; f\"\n";
    fs::write(rig.path("home/.gitconfig"), helper).unwrap();
    let source = rig.source(&server.url("ann:wo%3Ard@", "up"), "main");
    holds(&source, "one");
    rig.commit("two");
    holds(&source, "two");
    let wrong = rig.source(&server.url("ann:sesame@", "up"), "main");
    let said = fails(&wrong);
    assert!(!said.contains("sesame"), "{said}");
    assert!(!format!("{source:?} {wrong:?}").contains("sesame"));
    for file in ["config", "FETCH_HEAD"] {
        let text = fs::read_to_string(rig.path("mirror").join(file)).unwrap_or_default();
        assert!(!text.contains("ann"), "{text}");
    }
}
