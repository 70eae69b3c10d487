//! Git: the one module that names `git2` or starts the `git` program.
//!
//! Reading a repository of the operator's goes through [`objects`] (libgit2, objects and refs
//! only). Everything else goes through the program, with an environment and a configuration that
//! are ours alone ([`command`]). A tree that an agent may have written is touched by
//! [`confined`] only.
//!
//! Nothing here follows a repository's own instructions: no hook, filter, credential helper or
//! pager that it names is ever run. Where a remote is reached, the operator's are ([`remote`]), and
//! there alone. Start with [`command::Git`].

pub mod command;
pub mod confined;
pub mod objects;
pub mod refs;
pub mod remote;

pub(crate) mod beneath;
mod pump;
