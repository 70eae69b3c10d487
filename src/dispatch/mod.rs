//! One run of one agent, from the claimed wake to the closed row.

pub mod classify;
pub mod transcript;
