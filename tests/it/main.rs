//! The one integration binary. Every file of this folder is listed here (tidy checks it).
