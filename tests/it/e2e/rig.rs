//! A config repository, source repositories and the real daemon, in a directory that goes away.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use homeostat::process::deadline::{Deadline, poll_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::disk::Disk;

/// Longer than anything here takes on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(120);

/// What the daemon's environment holds, and no agent's may.
pub(super) const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "not-for-agents");

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An agent that does what it is told: the user's text of its prompt is a script, which may use
/// these words. What it says it says as events, one JSON object a line.
const AGENT: &str = r#"
task=$(sed '1,/^<\/context>$/d')
say() { printf '{"type":"text","text":"%s"}\n' "$1"; }
spend() { printf '{"type":"usage","inputTokens":10,"outputTokens":1,"costMicros":%s}\n' "$1"; }
tokens() { printf '{"type":"usage","inputTokens":%s}\n' "$1"; }
fail() { printf '{"type":"error","message":"%s"}\n' "$1"; }
note() { echo "$1" >>NOTES.md && git add NOTES.md && git commit --quiet -m "$1"; }
await() { until [ -e "$1" ]; do sleep 0.05; done; }
eval "$task"
printf '{"type":"done"}\n'
"#;

/// What a command answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Answer {
    /// Its standard output without the line's end, when it went well.
    #[track_caller]
    pub(super) fn line(self) -> String {
        self.expect(0).stdout.trim_end().to_owned()
    }

    #[track_caller]
    pub(super) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

/// The rig. `root` holds `config` (a git repository), `app` and `lib` (sources), `data` (the
/// daemon's) and `open` (which agents may write to).
pub(super) struct Fleet {
    disk: Disk,
    /// What the next daemon makes worktrees with.
    pub(super) backend: &'static str,
    /// How the next daemon reads the config repository: `--source-repo`, or `--source`.
    pub(super) source: &'static str,
    /// The URL that the next daemon reads from instead.
    pub(super) remote: Option<String>,
    /// What else the next daemon is told.
    pub(super) arguments: Vec<&'static str>,
    /// What else the next daemon's environment holds.
    pub(super) variables: Vec<(&'static str, String)>,
    daemon: Option<Child>,
}

impl Fleet {
    /// On the temporary directory's file system, with ordinary checkouts.
    pub(super) fn plain() -> Self {
        Self::on(Disk::plain(), "git")
    }

    /// With worktrees of `backend` on `disk`: one agent `ada` in one space `room` over `app`.
    pub(super) fn on(disk: Disk, backend: &'static str) -> Self {
        let fleet = Self {
            disk,
            backend,
            source: "--source-repo",
            remote: None,
            arguments: Vec::new(),
            variables: Vec::new(),
            daemon: None,
        };
        for repository in ["app", "lib", "config"] {
            fs::create_dir(fleet.path(repository)).unwrap();
            fleet.git(repository, &["init", "--quiet", "--initial-branch=main"]);
        }
        for source in ["app", "lib"] {
            fs::write(fleet.path(source).join("README.md"), source).unwrap();
            fleet.commit_all(source, "Begin");
        }
        fs::create_dir(fleet.path("open")).unwrap();
        fs::set_permissions(fleet.path("open"), Permissions::from_mode(0o777)).unwrap();
        fleet.put("Fleet", "fleet", &json!({"firstRevision": "run"}));
        fleet.put("Workspace", "shop", &json!({"repos": ["app", "lib"]}));
        for source in ["app", "lib"] {
            fleet.put("Repo", source, &json!({"source": format!("../{source}")}));
        }
        fleet.put(
            "Adapter",
            "told",
            &json!({"type": "command", "command": "sh", "args": ["-c", AGENT], "output": "jsonLines"}),
        );
        fleet.put("Agent", "ada", &json!({"title": "Ada", "adapter": "told"}));
        fleet.put(
            "Space",
            "room",
            &json!({"agents": ["ada"], "repos": ["app"]}),
        );
        fleet.commit("Declare the fleet");
        fleet
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    /// Declares an object, in the file of its own; the next commit has it.
    pub(super) fn put(&self, kind: &str, name: &str, spec: &Value) {
        let mut metadata = json!({"name": name});
        if !matches!(kind, "Fleet" | "Workspace" | "Adapter") {
            metadata["workspace"] = json!("shop");
        }
        let object = json!({
            "apiVersion": "homeostat/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec,
        });
        fs::write(self.file_of(kind, name), object.to_string()).unwrap();
    }

    /// Annotates a declared object.
    pub(super) fn annotate(&self, kind: &str, name: &str, key: &str, value: &str) {
        self.mark("annotations", kind, name, key, value);
    }

    /// Labels a declared object.
    pub(super) fn label(&self, kind: &str, name: &str, key: &str, value: &str) {
        self.mark("labels", kind, name, key, value);
    }

    fn mark(&self, marks: &str, kind: &str, name: &str, key: &str, value: &str) {
        let file = self.file_of(kind, name);
        let mut object: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        object["metadata"][marks][key] = json!(value);
        fs::write(file, object.to_string()).unwrap();
    }

    pub(super) fn remove(&self, kind: &str, name: &str) {
        fs::remove_file(self.file_of(kind, name)).unwrap();
    }

    pub(super) fn file_of(&self, kind: &str, name: &str) -> PathBuf {
        self.path("config").join(format!("{kind}-{name}.yaml"))
    }

    /// Commits the config repository as it is; the revision.
    pub(super) fn commit(&self, message: &str) -> String {
        self.commit_all("config", message);
        self.git("config", &["rev-parse", "HEAD"])
    }

    fn commit_all(&self, repository: &str, message: &str) {
        self.git(repository, &["add", "--all"]);
        self.git(repository, &["commit", "--quiet", "-m", message]);
    }

    /// Git, as the operator runs it; what it printed.
    pub(super) fn git(&self, repository: &str, args: &[&str]) -> String {
        let user = ["-c", "user.name=Olga", "-c", "user.email=olga@example.com"];
        let mut command = program("git", &self.path(repository));
        command.args(user).args(args);
        let output = command.output().unwrap();
        assert!(output.status.success(), "git {args:?}: {output:?}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    fn homeostat(&self) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_homeostat"), &self.disk.path());
        command.env("HOMEOSTAT_CONFIG_DATA_DIR", self.path("data"));
        command
    }

    /// A command to the program; never to wait for longer than a test may take.
    pub(super) fn run(&self, args: &[&str]) -> Answer {
        self.run_with(args, &[])
    }

    /// The same, with more in its environment.
    pub(super) fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Answer {
        let mut command = self.homeostat();
        command.args(args).envs(variables.iter().copied());
        command.output().unwrap().into()
    }

    /// The JSON form of what a command shows.
    #[track_caller]
    pub(super) fn json(&self, args: &[&str]) -> Value {
        let answer = self.run(&[args, &["--output", "json"]].concat()).expect(0);
        serde_json::from_str(&answer.stdout).unwrap()
    }

    fn daemon_command(&self) -> Command {
        let mut command = self.homeostat();
        command.arg("daemon");
        match &self.remote {
            // Arguments are everybody's to read.
            Some(url) => command.env("HOMEOSTAT_CONFIG_SOURCE_REPO", url),
            None => command.arg(self.source).arg(self.path("config")),
        };
        command
            .args(&self.arguments)
            .args(["--worktree-backend", self.backend])
            .args(["--debounce-ms", "20", "--scan-secs", "1"])
            .env(SECRET.0, SECRET.1)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon, and returns when it serves a revision: not always the latest.
    pub(super) fn start(&mut self) {
        self.begin();
        self.until("the daemon serves", |fleet| {
            let objects = fleet.run(&["get", "all", "--output", "json"]).stdout;
            objects.contains("\"revision\"").then_some(())
        });
    }

    /// Starts the daemon, and returns when it has said so.
    pub(super) fn begin(&mut self) {
        assert!(self.daemon.is_none(), "one daemon at a time");
        let said = File::create(self.path("daemon.log")).unwrap();
        let mut command = self.daemon_command();
        command.stdout(Stdio::null()).stderr(said);
        self.daemon = Some(command.spawn().unwrap());
        self.until("the daemon starts", |fleet| {
            fleet.said().contains("homeostat 0.").then_some(())
        });
    }

    /// Starts a daemon that is to refuse, and returns its answer.
    pub(super) fn start_refused(&self) -> Answer {
        self.daemon_command().output().unwrap().into()
    }

    /// What the daemon said so far.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let child = self.daemon.as_ref().expect("a daemon runs");
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Waits until the daemon has ended.
    #[track_caller]
    pub(super) fn ended(&mut self) -> ExitStatus {
        let mut child = self.daemon.take().expect("a daemon runs");
        let status = look_until(|| child.try_wait().unwrap());
        status.unwrap_or_else(|| {
            self.daemon = Some(child);
            panic!("the daemon does not end: {}", self.said());
        })
    }

    /// Ends the daemon in order, and starts it again.
    pub(super) fn restart(&mut self) {
        self.signal(Signal::TERM);
        assert!(self.ended().success(), "{}", self.said());
        self.start();
    }

    /// Looks again and again until `look` finds something.
    #[track_caller]
    pub(super) fn until<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let found = look_until(|| look(self));
        found.unwrap_or_else(|| panic!("never so: {what}\n{}", self.said()))
    }

    /// What the daemon says of its health.
    pub(super) fn health(&self) -> Value {
        let mut socket = UnixStream::connect(self.path("data/homeostat.sock")).unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        socket.write_all(request).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (_head, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// The only object of that name and kind.
    pub(super) fn get(&self, kind: &str, name: &str) -> Value {
        self.json(&["get", kind, name])["objects"][0].clone()
    }

    /// All runs, oldest first.
    pub(super) fn runs(&self) -> Vec<Value> {
        let mut runs = self.json(&["runs"])["runs"].as_array().unwrap().clone();
        runs.reverse();
        runs
    }

    /// The run of that id, when it has one and `is_so`.
    #[track_caller]
    pub(super) fn run_when(&self, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.until(&format!("run {id}"), |fleet| {
            let runs = fleet.runs();
            runs.into_iter().find(|run| run["id"] == id && is_so(run))
        })
    }

    /// The run of that id, when it is over.
    #[track_caller]
    pub(super) fn over(&self, id: &str) -> Value {
        self.run_when(id, |run| !run["endedAt"].is_null())
    }

    /// The run of that id, when its agent works.
    #[track_caller]
    pub(super) fn running(&self, id: &str) -> Value {
        self.run_when(id, |run| run["status"] == "running")
    }

    /// What holds the thing, when its hold has that reason.
    #[track_caller]
    pub(super) fn held(&self, subject: &str, reason: &str) -> String {
        self.until(&format!("{subject} is held, {reason}"), |fleet| {
            let answer = fleet.run(&["why", subject]);
            answer.stdout.contains(reason).then_some(answer.stdout)
        })
    }

    /// Asks for a run of `ada` in `room`; the run's id.
    #[track_caller]
    pub(super) fn dispatch(&self, script: &str) -> String {
        self.run(&["dispatch", "--agent", "ada", "--space", "room", script])
            .line()
    }

    /// Lets agents that wait for this file go on.
    pub(super) fn open(&self, gate: &str) {
        fs::write(self.path("open").join(gate), "").unwrap();
    }

    /// The words that make an agent wait for [`Fleet::open`].
    pub(super) fn gate(&self, gate: &str) -> String {
        format!("await {}", self.path("open").join(gate).display())
    }

    /// A file that an agent wrote among what is open.
    pub(super) fn left(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path("open").join(name)).ok()
    }

    /// The repository and the ref of every salvage.
    pub(super) fn salvages(&self) -> Vec<(String, String)> {
        let repos = fs::read_dir(self.path("data/repos"))
            .unwrap()
            .map(Result::unwrap);
        let saved = repos
            .map(|repo| repo.path().join("salvage.git"))
            .filter(|it| it.exists());
        let list = [
            "for-each-ref",
            "--format=%(refname)",
            "refs/homeostat/salvage",
        ];
        let refs = |saved: PathBuf| {
            let saved = saved.to_str().unwrap().to_owned();
            let refs = self.git(&saved, &list);
            let refs: Vec<_> = refs
                .lines()
                .map(|it| (saved.clone(), it.to_owned()))
                .collect();
            refs
        };
        saved.flat_map(refs).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            child.kill().ok();
            child.wait().ok();
        }
        // The daemon had no time to end its runs: the records say which are left.
        if self.path("data/homeostat.db").exists() {
            self.run(&["estop"]);
        }
    }
}

/// What a change to a file would change, but for the times of reading.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Print {
    inode: u64,
    mode: u32,
    changed: (i64, i64),
    bytes: Vec<u8>,
}

/// Of everything in the directory.
pub(super) fn fingerprint(directory: &Path) -> BTreeMap<PathBuf, Print> {
    let mut prints = BTreeMap::new();
    let mut rest = vec![directory.to_owned()];
    while let Some(path) = rest.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut bytes = Vec::new();
        if meta.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            rest.extend(entries.map(|entry| entry.unwrap().path()));
        } else if meta.is_file() {
            bytes = fs::read(&path).unwrap();
        }
        let print = Print {
            inode: meta.ino(),
            mode: meta.mode(),
            // No call sets this time.
            changed: (meta.ctime(), meta.ctime_nsec()),
            bytes,
        };
        prints.insert(path, print);
    }
    prints
}

/// Whether no process of that pid works any more; one that nobody has reaped does not.
pub(super) fn is_gone(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.contains(") Z ")) || !Path::new(&format!("/proc/{pid}")).exists()
}

/// Looks again and again, but not for ever.
fn look_until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Deadline::after(LONG);
    loop {
        let found = look();
        if found.is_some() || deadline.passed() {
            return found;
        }
        let pause = deadline.left().min(LOOK_EVERY);
        poll_until(&mut [], Some(Deadline::after(pause))).unwrap();
    }
}

/// A program with nothing of ours in its environment.
#[expect(
    clippy::disallowed_methods,
    reason = "the program is watched from outside, as its users see it"
)]
pub(super) fn program(name: &str, directory: &Path) -> Command {
    let mut command = Command::new(name);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", directory)
        .env("TZ", "UTC")
        .current_dir(directory);
    command
}
