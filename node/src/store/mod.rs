//! The files of a data directory, each written whole or not at all, and the thread that writes checkpoints.

pub(crate) mod checkpoint_writer;
pub(crate) mod contacts_file;
pub mod data_dir;
pub(crate) mod data_dir_lock;
pub(crate) mod history_file;
pub mod manifest_file;
pub(crate) mod mark_file;
pub mod preprocessing_file;
pub mod private_dir;
pub mod private_file;
pub(crate) mod record_file;
pub(crate) mod slot_file;
