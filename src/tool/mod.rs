//! The tools that the daemon offers to runs: what there is, in which mode, and what a call does.
//!
//! One list, [`materialize`], is what the prompt names and what every way of calling (the MCP
//! server now) offers, so that an agent is never told of a tool that it lacks. [`call()`] checks the
//! arguments and asks the [`ToolPort`]; what the records hold is behind that port.

mod args;
mod call;
mod catalog;
mod port;

pub use args::{GetMessages, Recall, Remember, SubmitPlan};
pub use call::{CallError, call};
pub use catalog::materialize;
pub use port::{Kept, Line, Messages, ToolFault, ToolPort};
