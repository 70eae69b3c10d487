//! Tokens to money.
//!
//! An operator's own prices win over the built-in table, which is data of a pinned version and is
//! read without network. A model that neither knows is *unpriced*, with the reason; it never costs
//! zero, so that no budget takes it for free.
//!
//! Pure: the instant is an argument, since prices have dates. The built-in table is decoded once a
//! process, which takes tens of milliseconds: make a [`PriceTable`] at startup.
//!
//! Not here: what a run spent (`store`), and what it may spend (`plan`).

mod builtin;
mod table;

#[cfg(test)]
mod tests;

pub use table::{Cost, PriceTable, Unpriced};
