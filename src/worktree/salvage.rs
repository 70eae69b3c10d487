//! Saves what an agent did and did not hand over, before its tree goes.
//!
//! Everything ends up below one commit, under `refs/homeostat/salvage/<space>/<time>` in a bare
//! repository beside the cache (which it borrows objects from). Beside, not in: the cache's packs
//! go into every worktree of the repo, and one space's saved work must not.
//!
//! The commit's tree is the working tree with every file that no ignore rule covers; its first
//! parent is `HEAD`; its other parents are what else would be lost (other branches, stash entries,
//! the index where it differs, repositories inside the tree), each named in its message. It is
//! made by confined git as the run user and is taken in as a bundle. What an agent committed may
//! displease git's own checks: it is taken all the same, since nothing of ours acts on it and
//! losing it would be worse.

use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tempfile::NamedTempFile;

use super::cache::{CreateError, create_salvage};
use super::inspect::{self, Changes, InspectError, Trust};
use super::layout::Layout;
use super::lock::RepoLock;
use super::readable::make_readable;
use crate::git::command::{Git, GitError, Limits};
use crate::git::confined::{Confined, ConfinedError};
use crate::model::id::Uid;
use crate::model::worktree::{ObjectId, UserIds};

/// Most things beside `HEAD` that one salvage takes. A tree with more is kept.
const EXTRAS_MAX: usize = 500;

/// When the parts of a salvage were made: no time, so that the same parts are the same commits.
const NO_TIME: Timestamp = Timestamp::UNIX_EPOCH;

/// Why a tree's work could not be saved. The tree must stay.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The tree's state is unknown.
    #[error("find out what would be lost")]
    Inspect(#[from] InspectError),
    /// There is more to save than one salvage takes.
    #[error(
        "save {count} branches, stashes and nested repositories: at most {EXTRAS_MAX} are taken"
    )]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// The work could not be put into a commit or a bundle.
    #[error("pack the work of {}", tree.display())]
    Pack {
        /// The tree.
        tree: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// The work was not taken in, or the cache could not be asked.
    #[error("store the work of {}", tree.display())]
    Store {
        /// The tree.
        tree: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// A file of ours could not be made.
    #[error("write while saving {}", tree.display())]
    Write {
        /// The tree.
        tree: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Whose work, and where it is.
#[derive(Clone, Debug)]
pub struct SalvageRequest {
    /// The worktree.
    pub tree: PathBuf,
    /// Its space.
    pub space: Uid,
    /// Its repo.
    pub repo: Uid,
    /// The commit that it started from.
    pub base: ObjectId,
    /// Who owns it.
    pub user: UserIds,
    /// When this happens.
    pub now: Timestamp,
}

/// Saved work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageRef {
    /// `refs/homeostat/salvage/<space>/<time>` in the repo's salvage repository.
    pub name: String,
    /// The commit that holds all of it.
    pub commit: ObjectId,
}

/// Saves the work in a tree; none when everything in it is in the cache already.
///
/// # Errors
/// [`SalvageError`]. Can be repeated after any of them, and after a crash: work that an earlier
/// attempt saved whole is found and named again.
pub fn salvage(
    layout: &Layout,
    request: &SalvageRequest,
) -> Result<Option<SalvageRef>, SalvageError> {
    make_readable(&request.tree, request.user.uid).map_err(|source| SalvageError::Write {
        tree: request.tree.clone(),
        source,
    })?;
    let job = Job {
        view: inspect::open(layout, &request.tree, request.user, Trust::Nothing)?,
        layout,
        request,
    };
    let changes = Changes::read(&job.view)?;
    let mut extras = job.unsaved_refs()?;
    let head = job.head();
    let is_head_saved = match &head {
        Some(head) => job.is_cached(std::slice::from_ref(head))?[0],
        None => true,
    };
    job.add_nested(&changes, &mut extras)?;
    let staged = job.staged(head.as_ref())?;
    let work = job.work_tree(&changes, head.as_ref())?;
    let is_dirty = work.is_some() || staged.is_some();
    if let Some(staged) = staged.filter(|staged| Some(staged) != work.as_ref()) {
        let parents: Vec<_> = head.iter().cloned().collect();
        let commit = job.commit(&staged, &parents, "the index", NO_TIME)?;
        extras.push(Extra::new("the index", commit));
    }
    if !is_dirty && is_head_saved && extras.is_empty() {
        return Ok(None);
    }
    if extras.len() > EXTRAS_MAX {
        return Err(SalvageError::TooMany {
            count: extras.len(),
        });
    }
    let tree = match (work, &head) {
        (Some(tree), _) => tree,
        (None, Some(head)) => job.tree_of(head)?,
        (None, None) => job.written_tree()?,
    };
    let (message, parents) = describe(head, extras);
    if let Some(earlier) = job.earlier(&tree, &parents)? {
        return Ok(Some(earlier));
    }
    let commit = job.commit(&tree, &parents, &message, request.now)?;
    job.store(commit).map(Some)
}

/// The newest salvage of a space's worktree: what a tree that is gone was saved as.
///
/// # Errors
/// Any [`GitError`].
pub(super) fn newest(
    layout: &Layout,
    repo: Uid,
    space: Uid,
) -> Result<Option<SalvageRef>, GitError> {
    let saved = layout.salvage(repo);
    if !saved.exists() {
        return Ok(None);
    }
    let list = Git::new(&saved, "for-each-ref").args([
        "--sort=-refname",
        "--count=1",
        "--format=%(objectname) %(refname)",
        &prefix(space),
    ]);
    let list = list.run()?;
    let found = list.line()?.split_once(' ').map(|(commit, name)| {
        Ok(SalvageRef {
            name: name.to_owned(),
            commit: commit.parse().map_err(|_not_an_id| list.unexpected())?,
        })
    });
    found.transpose()
}

/// Where the salvages of a space's worktrees are; their names sort by time.
fn prefix(space: Uid) -> String {
    format!("refs/homeostat/salvage/{space}/")
}

/// Something besides `HEAD` that would be lost.
#[derive(Debug)]
struct Extra {
    what: String,
    commit: ObjectId,
}

impl Extra {
    fn new(what: impl Into<String>, commit: ObjectId) -> Self {
        Self {
            what: what.into(),
            commit,
        }
    }
}

/// The salvage commit's message, and its parents in the order that the message names.
fn describe(head: Option<ObjectId>, extras: Vec<Extra>) -> (String, Vec<ObjectId>) {
    let mut message = "Work saved before its worktree was removed\n".to_owned();
    let head = head.map(|head| Extra::new("HEAD", head));
    let mut parents: Vec<ObjectId> = Vec::new();
    for extra in head.into_iter().chain(extras) {
        let known = parents.iter().position(|parent| *parent == extra.commit);
        let number = known.unwrap_or(parents.len()) + 1;
        // A write to a string can't fail.
        let _written = write!(message, "\nparent {number}: {}", extra.what);
        if known.is_none() {
            parents.push(extra.commit);
        }
    }
    message.push('\n');
    (message, parents)
}

struct Job<'a> {
    view: Confined,
    layout: &'a Layout,
    request: &'a SalvageRequest,
}

impl Job<'_> {
    fn pack_error(&self, source: GitError) -> SalvageError {
        SalvageError::Pack {
            tree: self.request.tree.clone(),
            source,
        }
    }

    fn store_error(&self, source: GitError) -> SalvageError {
        SalvageError::Store {
            tree: self.request.tree.clone(),
            source,
        }
    }

    fn write_error(&self, source: io::Error) -> SalvageError {
        SalvageError::Write {
            tree: self.request.tree.clone(),
            source,
        }
    }

    /// Runs confined git and reads one object id.
    fn id(&self, git: Git) -> Result<ObjectId, SalvageError> {
        git.limits(Limits::WORK)
            .run()
            .and_then(|output| output.object_id())
            .map_err(|source| self.pack_error(source))
    }

    /// The commit that `HEAD` stands for, if it is there.
    fn head(&self) -> Option<ObjectId> {
        self.view.refs().and_then(|refs| refs.head_id()).cloned()
    }

    fn tree_of(&self, commit: &ObjectId) -> Result<ObjectId, SalvageError> {
        let tree = format!("{commit}^{{tree}}");
        self.id(self.view.git("rev-parse").args(["--verify", &tree]))
    }

    fn written_tree(&self) -> Result<ObjectId, SalvageError> {
        self.id(self.view.git("write-tree"))
    }

    /// Whether each object, with all that it needs, came from the source.
    fn is_cached(&self, ids: &[ObjectId]) -> Result<Vec<bool>, SalvageError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let cache = self.layout.cache(self.request.repo);
        let check = Git::new(&cache, "cat-file").arg("--batch-check=%(objecttype)");
        let answer = check.stdin(lines(ids, "")).run();
        let answer = answer.map_err(|source| self.store_error(source))?;
        let answers: Vec<bool> = answer
            .stdout
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| !line.ends_with(b" missing"))
            .collect();
        if answers.len() == ids.len() {
            Ok(answers)
        } else {
            Err(self.store_error(answer.unexpected()))
        }
    }

    /// Refs and stash entries whose commits did not come from the source.
    fn unsaved_refs(&self) -> Result<Vec<Extra>, SalvageError> {
        let Some(refs) = self.view.refs() else {
            return Ok(Vec::new());
        };
        let named = refs
            .refs
            .iter()
            .map(|(name, id)| (name.clone(), id.clone()));
        let stashed = refs.stashes.iter().enumerate();
        let stashed = stashed.map(|(number, id)| (format!("stash@{{{number}}}"), id.clone()));
        let head = refs.head_id();
        let found: Vec<_> = named
            .chain(stashed)
            .filter(|(name, id)| name != "refs/stash" && Some(id) != head)
            .collect();
        self.unsaved(&found)
    }

    /// Those of `found` that lead to a commit that did not come from the source.
    fn unsaved(&self, found: &[(String, ObjectId)]) -> Result<Vec<Extra>, SalvageError> {
        let ids: Vec<_> = found.iter().map(|(_, id)| id.clone()).collect();
        let cached = self.is_cached(&ids)?;
        let missing = found.iter().zip(cached).filter(|(_, is_cached)| !is_cached);
        let missing: Vec<_> = missing.map(|(found, _)| found).collect();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<_> = missing.iter().map(|(_, id)| id.clone()).collect();
        let peel = self.view.git("cat-file").arg("--batch-check=%(objectname)");
        let peeled = peel.stdin(lines(&ids, "^{commit}")).run();
        let peeled = peeled.map_err(|source| self.pack_error(source))?;
        let text = String::from_utf8_lossy(&peeled.stdout);
        // What is no commit any more (a ref to a blob, a lost object) has nothing to save.
        let commits = text.lines().map(|line| line.parse::<ObjectId>().ok());
        let extras = missing.iter().zip(commits);
        Ok(extras
            .filter_map(|((name, _), commit)| Some(Extra::new(name.as_str(), commit?)))
            .collect())
    }

    /// The index as a tree, where it differs from `HEAD`. An index in conflict has no tree.
    fn staged(&self, head: Option<&ObjectId>) -> Result<Option<ObjectId>, SalvageError> {
        let written = self.view.git("write-tree").output();
        let written = written.map_err(|source| self.pack_error(source))?;
        if !written.is_success() {
            return Ok(None);
        }
        let tree = written
            .object_id()
            .map_err(|source| self.pack_error(source))?;
        let Some(head) = head else {
            return Ok(Some(tree));
        };
        Ok(Some(tree).filter(|tree| self.tree_of(head).is_ok_and(|of_head| of_head != *tree)))
    }

    /// The working tree as a tree, where it differs from `HEAD`.
    fn work_tree(
        &self,
        changes: &Changes,
        head: Option<&ObjectId>,
    ) -> Result<Option<ObjectId>, SalvageError> {
        self.update_index(self.view.git("update-index"), changes)?;
        let tree = self.written_tree()?;
        match head {
            Some(head) if self.tree_of(head)? == tree => Ok(None),
            _ => Ok(Some(tree)),
        }
    }

    fn update_index(&self, update: Git, changes: &Changes) -> Result<(), SalvageError> {
        let paths = changes.modified.iter().chain(&changes.untracked);
        let mut stdin = Vec::new();
        for path in paths {
            stdin.extend_from_slice(path);
            stdin.push(0);
        }
        if stdin.is_empty() {
            return Ok(());
        }
        let update = update.args(["--add", "--remove", "--replace", "-z", "--stdin"]);
        let update = update.stdin(stdin).limits(Limits::WORK).run();
        update
            .map(|_output| ())
            .map_err(|source| self.pack_error(source))
    }

    /// Puts what is in nested repositories below commits of their own.
    fn add_nested(&self, changes: &Changes, extras: &mut Vec<Extra>) -> Result<(), SalvageError> {
        if changes.nested.len() > EXTRAS_MAX {
            return Err(SalvageError::TooMany {
                count: changes.nested.len(),
            });
        }
        let mut nested = Vec::new();
        for path in &changes.nested {
            let tree = self.request.tree.join(std::ffi::OsStr::from_bytes(path));
            let view = Confined::open(&tree, &self.layout.build(), self.request.user);
            match view {
                Ok(view) => nested.push((path, view)),
                // Its `.git` is a file, say. Its content has nowhere else to be looked for.
                Err(
                    error @ (ConfinedError::Refs { .. }
                    | ConfinedError::Tree { .. }
                    | ConfinedError::Scratch { .. }),
                ) => {
                    return Err(InspectError::from(error).into());
                }
            }
        }
        let trees = nested.iter().map(|(_, view)| view.tree());
        let trees: Vec<&Path> = std::iter::once(self.view.tree()).chain(trees).collect();
        self.view
            .borrow_objects(&trees)
            .map_err(|source| self.write_error(source))?;
        for (path, view) in nested {
            extras.push(self.nested(path, &view)?);
        }
        Ok(())
    }

    fn nested(&self, path: &[u8], view: &Confined) -> Result<Extra, SalvageError> {
        let refs = view.refs();
        let head = refs.and_then(|refs| refs.head_id()).cloned();
        let start = match &head {
            Some(head) => vec![head.as_str()],
            None => vec!["--empty"],
        };
        let read = self.view.git_nested(view, "read-tree").args(start).run();
        read.map_err(|source| self.pack_error(source))?;
        let changes = Changes::parse(&self.view, |subcommand| {
            self.view.git_nested(view, subcommand)
        })?;
        self.update_index(self.view.git_nested(view, "update-index"), &changes)?;
        let tree = self.id(self.view.git_nested(view, "write-tree"))?;
        let name = String::from_utf8_lossy(path).into_owned();
        let tips: Vec<_> = refs
            .into_iter()
            .flat_map(|refs| {
                let named = refs
                    .refs
                    .iter()
                    .map(|(name, id)| (name.clone(), id.clone()));
                let stashes = refs
                    .stashes
                    .iter()
                    .map(|id| ("stash".to_owned(), id.clone()));
                named.chain(stashes)
            })
            .collect();
        let (message, parents) = describe(head, self.unsaved(&tips)?);
        let commit = self.commit(&tree, &parents, &message, NO_TIME)?;
        Ok(Extra::new(format!("the repository in {name:?}"), commit))
    }

    fn commit(
        &self,
        tree: &ObjectId,
        parents: &[ObjectId],
        message: &str,
        time: Timestamp,
    ) -> Result<ObjectId, SalvageError> {
        let date = format!("@{} +0000", time.as_second());
        let mut git = self.view.git("commit-tree").arg(tree.as_str());
        for parent in parents {
            git = git.args(["-p", parent.as_str()]);
        }
        for (name, email, when) in [
            ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"),
            (
                "GIT_COMMITTER_NAME",
                "GIT_COMMITTER_EMAIL",
                "GIT_COMMITTER_DATE",
            ),
        ] {
            git = git
                .env(name, "homeostat")
                .env(email, "salvage@homeostat.local")
                .env(when, &date);
        }
        self.id(git.stdin(message.as_bytes().to_vec()))
    }

    /// A salvage of the same work, made before a crash.
    fn earlier(
        &self,
        tree: &ObjectId,
        parents: &[ObjectId],
    ) -> Result<Option<SalvageRef>, SalvageError> {
        let saved = self.layout.salvage(self.request.repo);
        if !saved.exists() {
            return Ok(None);
        }
        let list = Git::new(&saved, "for-each-ref")
            .args([
                "--format=%(objectname) %(tree) %(refname) %(parent)",
                &prefix(self.request.space),
            ])
            .run()
            .map_err(|source| self.store_error(source))?;
        let text = String::from_utf8_lossy(&list.stdout);
        let found = text.lines().find_map(|line| {
            let mut words = line.split(' ');
            let commit = words.next()?.parse().ok()?;
            let (its_tree, name) = (words.next()?, words.next()?);
            let its_parents = words.filter(|word| !word.is_empty());
            let is_same =
                its_tree == tree.as_str() && its_parents.eq(parents.iter().map(ObjectId::as_str));
            is_same.then(|| SalvageRef {
                name: name.to_owned(),
                commit,
            })
        });
        Ok(found)
    }

    /// Takes the commit in, under its name.
    fn store(&self, commit: ObjectId) -> Result<SalvageRef, SalvageError> {
        let time = self.request.now.strftime("%Y%m%dT%H%M%S%3fZ");
        let name = format!("{}{time}", prefix(self.request.space));
        let bundle = self.bundle(&name, &commit)?;
        let repo = self.layout.repo(self.request.repo);
        let _lock = RepoLock::exclusive(&repo).map_err(|source| self.write_error(source))?;
        let saved = self.layout.salvage(self.request.repo);
        create_salvage(&saved, &self.layout.cache(self.request.repo)).map_err(
            |error| match error {
                CreateError::System(source) => self.write_error(source),
                CreateError::Git(source) => self.store_error(source),
            },
        )?;
        let fetch = |checks: &str| {
            Git::new(&saved, "fetch")
                .args([
                    "--quiet",
                    "--no-tags",
                    "--no-write-fetch-head",
                    "--atomic",
                    "--",
                ])
                .arg(bundle.path())
                .arg(format!("{name}:{name}"))
                .setting(format!("fetch.fsckObjects={checks}"))
                .setting("fetch.unpackLimit=1")
                .limits(Limits::WORK)
                .run()
        };
        let stored = fetch("true").or_else(|_displeased| fetch("false"));
        stored.map_err(|source| self.store_error(source))?;
        Ok(SalvageRef { name, commit })
    }

    /// A bundle of `commit` as `name`, in a file of ours, without what the source gave us.
    fn bundle(&self, name: &str, commit: &ObjectId) -> Result<NamedTempFile, SalvageError> {
        self.view
            .write_ref(name, commit)
            .map_err(|source| self.write_error(source))?;
        let bundle = tempfile::Builder::new()
            .prefix("salvage-")
            .tempfile_in(self.layout.build());
        let bundle = bundle.map_err(|source| self.write_error(source))?;
        let output = bundle.reopen().map_err(|source| self.write_error(source))?;
        let base = &self.request.base;
        let is_in_tree = self
            .view
            .git("cat-file")
            .args(["-e", &format!("{base}^{{commit}}")]);
        let is_in_tree = is_in_tree
            .output()
            .map_err(|source| self.pack_error(source))?;
        let mut pack = self
            .view
            .git("bundle")
            .args(["create", "--quiet", "-", name]);
        if is_in_tree.is_success() && self.is_cached(std::slice::from_ref(base))?[0] {
            pack = pack.args(["--not", base.as_str()]);
        }
        let pack = pack.stdout_to(output).limits(Limits::WORK).run();
        pack.map_err(|source| self.pack_error(source))?;
        Ok(bundle)
    }
}

fn lines(ids: &[ObjectId], suffix: &str) -> Vec<u8> {
    let lines = ids.iter().map(|id| format!("{id}{suffix}\n"));
    lines.collect::<String>().into_bytes()
}
