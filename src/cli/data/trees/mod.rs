//! Commands on all that lies below a path: listed, copied, compared, made what a file says.

mod again;
pub(in crate::cli) mod apply;
pub(in crate::cli) mod copy;
mod doubt;
pub(in crate::cli) mod import;
pub(in crate::cli) mod ls;
mod repeated;
pub(in crate::cli) mod tree;
pub(in crate::cli) mod undo;
