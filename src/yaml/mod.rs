//! YAML as a tree whose every key and value knows its place.
//!
//! [`parse()`] reads all documents of a file and goes on after faults; nothing in it recurses, and
//! every size is bounded by [`limits`], so hostile input is a finding. [`emit()`] writes. Scalars
//! follow the core schema of YAML 1.2: `no` is text, `"3"` is text, `0777` is a number.

mod build;
mod emit;
mod parse;
mod scalar;
#[cfg(test)]
mod tests;
mod tree;

pub use emit::emit;
pub use parse::{Comment, comments, parse};
pub use scalar::is_ambiguous;
pub use tree::{Document, Entry, Node, NodeRef, Parsed, Value};

/// What a file may hold. Fixed: a larger configuration has more files.
pub mod limits {
    /// Bytes of a file.
    pub const FILE_BYTES_MAX: usize = 1 << 20;
    /// Lists and mappings inside each other.
    pub const DEPTH_MAX: usize = 64;
    /// Values of a document, aliases written out.
    pub const NODES_MAX: usize = 50_000;
    /// Documents of a file.
    pub const DOCUMENTS_MAX: u32 = 1_000;
}
