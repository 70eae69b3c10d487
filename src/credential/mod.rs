//! Whose key a run's model calls use.
//!
//! The order is fixed: what the Adapter sets, the environment of whoever asked for the run, the
//! daemon's store, the daemon's own environment. The first that has anything decides, even when
//! what it has is expired: falling through to a weaker source would bill another account without
//! a word. The winner's source and what it shadows are for the run's record; the values never are.
//!
//! A [`Secret`] doesn't print. The store is one file that only the daemon's user can read.
//!
//! Not here: refreshing a token, forge credentials, and how a key reaches the model (`gateway`).
//!
//! Start with [`resolve()`]; [`CredentialStore`] is what `login` fills.

mod provider;
mod resolve;
mod secret;
mod store;

#[cfg(test)]
mod tests;

pub use provider::{Provider, Scheme};
pub use resolve::{
    CredentialError, CredentialSource, Place, Resolved, Sources, resolve, variables_in,
};
pub use secret::{SECRET_BYTES_MAX, Secret, SecretError};
pub use store::{CredentialStore, Credentials, FILE_NAME, StoreError, Stored};
