//! Tables of text: what separates their cells, what their columns hold, and what in them was likely not meant.

pub(crate) mod csv;
pub(crate) mod delimiter;
pub(crate) mod doubts;
pub(crate) mod form;
pub(crate) mod json_lines;
pub(crate) mod lines;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod pieces;
pub(crate) mod placed;
pub(crate) mod row_text;
pub(crate) mod rows;
pub(crate) mod survey;
pub(crate) mod walk;
