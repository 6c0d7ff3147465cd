//! The demonstration: what `make demo` runs.
//!
//! The commands are declared in `main` once the demonstration exists; it stands on `cluster::up`,
//! `image::build` and `cluster::push`, as the tests do.
