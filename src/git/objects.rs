//! Reads refs, commits, trees and blobs of a repository without a checkout.
//!
//! libgit2 only ever *reads* here. It runs no program, whatever the repository's configuration
//! says, and it writes nothing: not even an index refresh.

use std::path::{Path, PathBuf};
use std::sync::Once;

use git2::{
    ErrorCode, ObjectType, Oid, Repository, RepositoryOpenFlags, TreeWalkMode, TreeWalkResult,
};

use crate::model::worktree::ObjectId;

/// A repository opened for reading.
pub struct Objects {
    repository: Repository,
    path: PathBuf,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("path", &self.path).finish()
    }
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// There is no readable repository at the path itself.
    #[error("open the git repository {}", path.display())]
    Open {
        /// Where it was looked for.
        path: PathBuf,
        /// What libgit2 said.
        #[source]
        source: git2::Error,
    },
    /// A ref could not be followed to a commit.
    #[error("resolve {reference:?}")]
    Resolve {
        /// As it was given.
        reference: String,
        /// What libgit2 said.
        #[source]
        source: git2::Error,
    },
    /// An object is missing or damaged.
    #[error("read {what} of commit {commit}")]
    Read {
        /// `"the author"`, or a path.
        what: String,
        /// The commit that was being read.
        commit: ObjectId,
        /// What libgit2 said.
        #[source]
        source: git2::Error,
    },
    /// The commit has no such directory.
    #[error("read {directory:?} of commit {commit}: there is no such directory")]
    NoDirectory {
        /// The directory.
        directory: String,
        /// The commit.
        commit: ObjectId,
    },
    /// The directory holds more than the reader is ready to take.
    #[error("read {path:?} of commit {commit}: it is over the limit of {limit} {unit}")]
    TooLarge {
        /// The path at which the limit was passed.
        path: String,
        /// The commit that was being read.
        commit: ObjectId,
        /// The limit.
        limit: usize,
        /// `"files"` or `"bytes"`.
        unit: &'static str,
    },
    /// A commit names a point in time that no clock shows.
    #[error("read the time of commit {commit}")]
    Time {
        /// The commit.
        commit: ObjectId,
    },
}

/// Who made a commit, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFacts {
    /// Author's name; undecodable bytes are replaced.
    pub author_name: String,
    /// Author's e-mail; undecodable bytes are replaced.
    pub author_email: String,
    /// When it was committed.
    pub time: jiff::Timestamp,
    /// First line of the message.
    pub summary: String,
}

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Path from the directory that was asked for, as bytes with `/` between.
    pub path: Vec<u8>,
    /// What its content hashes to: the same id is the same content.
    pub id: ObjectId,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// How much a reader is ready to take.
#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    /// Files kept.
    pub files_max: usize,
    /// Bytes of one file.
    pub file_bytes_max: usize,
}

impl Objects {
    /// Opens the repository at `path`: a checkout, a linked worktree or a bare repository. Nothing
    /// above `path` is looked at, and it may belong to anyone.
    ///
    /// # Errors
    /// [`ObjectsError::Open`].
    pub fn open(path: &Path) -> Result<Self, ObjectsError> {
        trust_any_owner();
        let flags = RepositoryOpenFlags::NO_SEARCH;
        let none: [&Path; 0] = [];
        match Repository::open_ext(path, flags, none) {
            Ok(repository) => Ok(Self {
                repository,
                path: path.to_owned(),
            }),
            Err(source) => Err(ObjectsError::Open {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// The directory of the repository's refs and objects, for a watch.
    pub fn common_directory(&self) -> &Path {
        self.repository.commondir()
    }

    /// The commit that a branch name, a full ref name, `HEAD` or an id in full stands for. None
    /// where there is no such ref (yet).
    ///
    /// # Errors
    /// [`ObjectsError::Resolve`].
    pub fn resolve(&self, reference: &str) -> Result<Option<ObjectId>, ObjectsError> {
        let error = |source| ObjectsError::Resolve {
            reference: reference.to_owned(),
            source,
        };
        let found = match reference.parse::<ObjectId>() {
            Ok(id) => self.repository.find_object(oid(&id), None).map(Some),
            Err(_not_an_id) => self
                .repository
                .resolve_reference_from_short_name(reference)
                .and_then(|found| found.peel(ObjectType::Commit))
                .map(Some),
        };
        match found {
            Ok(Some(object)) => {
                let commit = object.peel_to_commit().map_err(error)?;
                Ok(Some(object_id(commit.id())))
            }
            Ok(None) => Ok(None),
            Err(source) => match source.code() {
                ErrorCode::NotFound | ErrorCode::UnbornBranch => Ok(None),
                _ => Err(error(source)),
            },
        }
    }

    /// The commit that `text`, as `git rev-parse` takes it (`HEAD~1`, `v1.2`, the beginning of an
    /// id), stands for. None where there is no such thing.
    ///
    /// # Errors
    /// [`ObjectsError::Resolve`], also when it could be two things.
    pub fn revision(&self, text: &str) -> Result<Option<ObjectId>, ObjectsError> {
        let found = self.repository.revparse_single(text);
        match found.and_then(|found| found.peel_to_commit()) {
            Ok(commit) => Ok(Some(object_id(commit.id()))),
            Err(source) => match source.code() {
                ErrorCode::NotFound | ErrorCode::UnbornBranch => Ok(None),
                _ => Err(ObjectsError::Resolve {
                    reference: text.to_owned(),
                    source,
                }),
            },
        }
    }

    /// Author, time and first line of a commit.
    ///
    /// # Errors
    /// [`ObjectsError::Read`], [`ObjectsError::Time`].
    pub fn commit(&self, id: &ObjectId) -> Result<CommitFacts, ObjectsError> {
        let commit = self.find_commit(id)?;
        let author = commit.author();
        let seconds = commit.time().seconds();
        let time = jiff::Timestamp::from_second(seconds);
        let time = time.map_err(|_out_of_range| ObjectsError::Time { commit: id.clone() })?;
        let message = String::from_utf8_lossy(commit.message_bytes());
        Ok(CommitFacts {
            author_name: String::from_utf8_lossy(author.name_bytes()).into_owned(),
            author_email: String::from_utf8_lossy(author.email_bytes()).into_owned(),
            time,
            summary: message.lines().next().unwrap_or_default().to_owned(),
        })
    }

    /// The regular files beneath `directory` (`""` is the root) of a commit whose path `keep`
    /// accepts, in git's order. Symbolic links and submodules are left out.
    ///
    /// # Errors
    /// [`ObjectsError::Read`], [`ObjectsError::NoDirectory`], [`ObjectsError::TooLarge`].
    pub fn files(
        &self,
        id: &ObjectId,
        directory: &str,
        keep: impl Fn(&[u8]) -> bool,
        limits: TreeLimits,
    ) -> Result<Vec<TreeFile>, ObjectsError> {
        let found = self.list(id, directory, keep, limits)?;
        let mut files = Vec::with_capacity(found.len());
        for (path, blob) in found {
            let too_large = |bytes: usize| bytes > limits.file_bytes_max;
            let read = |source| self.unreadable(id, &path, source);
            let (size, _kind) = self
                .repository
                .odb()
                .and_then(|odb| odb.read_header(blob))
                .map_err(read)?;
            if too_large(size) {
                return Err(over(id, &path, limits.file_bytes_max, "bytes"));
            }
            let content = self.repository.find_blob(blob).map_err(read)?;
            files.push(TreeFile {
                id: object_id(blob),
                bytes: content.content().to_vec(),
                path,
            });
        }
        Ok(files)
    }

    fn list(
        &self,
        id: &ObjectId,
        directory: &str,
        keep: impl Fn(&[u8]) -> bool,
        limits: TreeLimits,
    ) -> Result<Vec<(Vec<u8>, Oid)>, ObjectsError> {
        let read = |source| self.unreadable(id, directory.as_bytes(), source);
        let mut tree = self.find_commit(id)?.tree().map_err(read)?;
        if !directory.is_empty() {
            match tree.get_path(Path::new(directory)) {
                Ok(entry) if entry.kind() == Some(ObjectType::Tree) => {
                    tree = self.repository.find_tree(entry.id()).map_err(read)?;
                }
                Err(error) if error.code() != ErrorCode::NotFound => return Err(read(error)),
                Ok(_) | Err(_) => {
                    return Err(ObjectsError::NoDirectory {
                        directory: directory.to_owned(),
                        commit: id.clone(),
                    });
                }
            }
        }
        let mut found = Vec::new();
        let mut overflow = None;
        let walked = tree.walk(TreeWalkMode::PreOrder, |parent, entry| {
            let is_file = matches!(entry.filemode(), 0o100_644 | 0o100_755 | 0o100_664);
            let path = [parent.as_bytes(), entry.name_bytes()].concat();
            if !is_file || !keep(&path) {
                return TreeWalkResult::Ok;
            }
            if found.len() == limits.files_max {
                overflow = Some(path);
                return TreeWalkResult::Abort;
            }
            found.push((path, entry.id()));
            TreeWalkResult::Ok
        });
        if let Some(path) = overflow {
            return Err(over(id, &path, limits.files_max, "files"));
        }
        walked.map_err(read)?;
        Ok(found)
    }

    fn find_commit(&self, id: &ObjectId) -> Result<git2::Commit<'_>, ObjectsError> {
        let found = self.repository.find_commit(oid(id));
        found.map_err(|source| ObjectsError::Read {
            what: "the header".to_owned(),
            commit: id.clone(),
            source,
        })
    }

    fn unreadable(&self, id: &ObjectId, path: &[u8], source: git2::Error) -> ObjectsError {
        ObjectsError::Read {
            what: format!("{:?}", String::from_utf8_lossy(path)),
            commit: id.clone(),
            source,
        }
    }
}

fn over(id: &ObjectId, path: &[u8], limit: usize, unit: &'static str) -> ObjectsError {
    ObjectsError::TooLarge {
        path: String::from_utf8_lossy(path).into_owned(),
        commit: id.clone(),
        limit,
        unit,
    }
}

fn oid(id: &ObjectId) -> Oid {
    Oid::from_str(id.as_str()).expect("an ObjectId is 40 hex digits")
}

fn object_id(oid: Oid) -> ObjectId {
    let digits = oid.to_string().parse();
    digits.expect("libgit2 is built for SHA-1, whose ids have 40 hex digits")
}

/// libgit2 refuses repositories of other users, because working in one could run its
/// configuration. Reading objects runs nothing, and the operator named the path.
#[expect(
    unsafe_code,
    reason = "the option is a process-wide variable of libgit2"
)]
fn trust_any_owner() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the variable is written once, before this module opens its first repository.
        let set = unsafe { git2::opts::set_verify_owner_validation(false) };
        set.expect("libgit2 knows this option since 1.4");
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::git::command::Git;

    const LIMITS: TreeLimits = TreeLimits {
        files_max: 100,
        file_bytes_max: 1000,
    };

    fn git(directory: &Path, arguments: &[&str]) {
        let run = Git::new(directory, arguments[0])
            .args(&arguments[1..])
            .env("GIT_AUTHOR_NAME", "Ada")
            .env("GIT_AUTHOR_EMAIL", "ada@example.com")
            .env("GIT_AUTHOR_DATE", "1700000000 +0000")
            .env("GIT_COMMITTER_NAME", "Ada")
            .env("GIT_COMMITTER_EMAIL", "ada@example.com")
            .env("GIT_COMMITTER_DATE", "1700000000 +0000")
            .run();
        run.unwrap();
    }

    fn sample() -> tempfile::TempDir {
        let root = tempfile::Builder::new().tempdir().unwrap();
        git(root.path(), &["init", "-q", "-b", "main"]);
        let conf = root.path().join("conf/deep");
        std::fs::create_dir_all(&conf).unwrap();
        std::fs::write(conf.join("a.yaml"), "a: 1\n").unwrap();
        std::fs::write(root.path().join("conf/b.yaml"), "b: 2\n").unwrap();
        std::fs::write(root.path().join("conf/c.txt"), "no").unwrap();
        std::os::unix::fs::symlink("b.yaml", root.path().join("conf/link.yaml")).unwrap();
        git(root.path(), &["add", "-A"]);
        git(root.path(), &["commit", "-q", "-m", "first line\n\nrest"]);
        root
    }

    #[test]
    fn a_ref_leads_to_its_commit_and_files() {
        let root = sample();
        let objects = Objects::open(root.path()).unwrap();
        let id = objects.resolve("main").unwrap().unwrap();
        for same in ["HEAD", "refs/heads/main", id.as_str()] {
            assert_eq!(objects.resolve(same).unwrap().as_ref(), Some(&id), "{same}");
        }
        for same in ["main", "HEAD", "HEAD^0", &id.as_str()[..12]] {
            assert_eq!(
                objects.revision(same).unwrap().as_ref(),
                Some(&id),
                "{same}"
            );
        }
        for absent in ["HEAD~1", "v1.2"] {
            assert_eq!(objects.revision(absent).unwrap(), None, "{absent}");
        }
        let facts = objects.commit(&id).unwrap();
        assert_eq!(
            (facts.author_name.as_str(), facts.author_email.as_str()),
            ("Ada", "ada@example.com")
        );
        assert_eq!(facts.time.as_second(), 1_700_000_000);
        assert_eq!(facts.summary, "first line");
        let yaml = |path: &[u8]| path.ends_with(b".yaml");
        let files = objects.files(&id, "conf", yaml, LIMITS).unwrap();
        let read: Vec<_> = files
            .iter()
            .map(|file| (file.path.as_slice(), file.bytes.as_slice()))
            .collect();
        assert_eq!(
            read,
            [
                (b"b.yaml".as_slice(), b"b: 2\n".as_slice()),
                (b"deep/a.yaml", b"a: 1\n")
            ]
        );
        for absent in ["absent", "conf/b.yaml", "conf/b.yaml/deeper"] {
            let error = objects.files(&id, absent, yaml, LIMITS).unwrap_err();
            assert!(matches!(error, ObjectsError::NoDirectory { .. }), "{error}");
        }
    }

    #[test]
    fn an_absent_ref_is_an_answer_and_an_absent_repository_is_not() {
        let root = sample();
        let objects = Objects::open(root.path()).unwrap();
        assert_eq!(objects.resolve("no-such-branch").unwrap(), None);
        let nowhere = root.path().join("conf");
        assert!(matches!(
            Objects::open(&nowhere),
            Err(ObjectsError::Open { .. })
        ));
    }

    #[test]
    fn limits_hold() {
        let root = sample();
        let objects = Objects::open(root.path()).unwrap();
        let id = objects.resolve("main").unwrap().unwrap();
        let two = TreeLimits {
            files_max: 2,
            ..LIMITS
        };
        let small = TreeLimits {
            file_bytes_max: 3,
            ..LIMITS
        };
        for (limits, unit) in [(two, "files"), (small, "bytes")] {
            let error = objects.files(&id, "conf", |_| true, limits).unwrap_err();
            assert!(
                matches!(error, ObjectsError::TooLarge { unit: found, .. } if found == unit),
                "{error}"
            );
        }
    }
}
