//! One file per subcommand: its arguments, and what it does.

mod select;

pub(crate) mod schema;
pub(crate) mod validate;
pub(crate) mod version;
