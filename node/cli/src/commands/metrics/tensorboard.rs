//! Event files as TensorBoard reads them: records of TensorFlow (`TFRecord`) that hold messages of `event.proto`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;
use chrono::DateTime;
use prost::Message;
use starling_node::observe::metrics::{Metrics, MetricsRecord};
use starling_node::store::private_file::for_others;

use super::measures;

/// What the first record says.
const VERSION: &str = "brain.Event:2";

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    /// One of several kinds of value in `event.proto`: a 0 that is left out is no value at all, so that it is always there.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// Writes an event file into a folder for the run in `folder`, which TensorBoard shows beside other runs there, and says where it is.
/// The same run replaces it.
///
/// # Errors
/// If it can't be written.
pub(super) fn write(folder: &Path, metrics: &Metrics) -> io::Result<PathBuf> {
    let run = metrics.run();
    let folder = folder.join(run);
    fs::create_dir_all(&folder)?;
    let begin = metrics.rows.first().map_or(0.0, wall_time);
    let mut bytes = Vec::new();
    record(&mut bytes, &Event { wall_time: begin, file_version: Some(VERSION.to_owned()), ..Event::default() });
    for row in &metrics.rows {
        let value = |(tag, value): (String, f64)| Value { tag, simple_value: Some(value as f32) };
        let values = measures(row, "/").into_iter().map(value).collect();
        let step = i64::try_from(row.step).unwrap_or(i64::MAX);
        let summary = Some(Summary { values });
        record(&mut bytes, &Event { wall_time: wall_time(row), step, file_version: None, summary });
    }
    // TensorBoard may be reading it, as whoever. It shows all files of a folder as one run, so that there is one, whenever its first row is from.
    let path = folder.join("events.out.tfevents.starling");
    for_others(&folder, || {
        let mut file = AtomicWriteFile::open(&path)?;
        file.write_all(&bytes)?;
        file.commit()
    })?;
    Ok(path)
}

/// Seconds since 1970.
fn wall_time(row: &MetricsRecord) -> f64 {
    DateTime::parse_from_rfc3339(&row.time).map_or(0.0, |time| time.timestamp_millis() as f64 / 1000.0)
}

/// A record: its length, the checksum of that, the message, its checksum, all little-endian.
fn record(bytes: &mut Vec<u8>, event: &Event) {
    let message = event.encode_to_vec();
    let length = (message.len() as u64).to_le_bytes();
    bytes.extend(length);
    bytes.extend(checksum(&length));
    bytes.extend(&message);
    bytes.extend(checksum(&message));
}

/// CRC-32C, masked as TensorFlow does it, so that checksums of what holds checksums stay good.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_those_that_tensorboard_writes() {
        let mut bytes = Vec::new();
        let summary = Summary { values: vec![Value { tag: "training/loss".to_owned(), simple_value: Some(0.5) }] };
        record(&mut bytes, &Event { wall_time: 1.5, step: 7, file_version: None, summary: Some(summary) });
        assert_eq!(hex::encode(bytes), WRITTEN_BY_TENSORBOARD);
    }

    /// The tag, which is of one letter, and the four bytes of the number.
    #[test]
    fn a_value_of_zero_is_written() {
        let bytes = Value { tag: "a".to_owned(), simple_value: Some(0.0) }.encode_to_vec();
        assert_eq!(hex::encode(bytes), "0a01611500000000");
    }

    fn curve(time: &str) -> Metrics {
        let line = format!("{{\"time\":\"{time}\",\"step\":1,\"held_out\":{{\"loss\":0.5}}}}\n");
        let folder = tempfile::tempdir().expect("a directory");
        fs::write(folder.path().join("metrics-0123456789abcdef.jsonl"), line).expect("written");
        Metrics::read(folder.path(), None).expect("read").expect("there")
    }

    /// A run that went on from before its first row has another one.
    #[test]
    fn a_run_has_one_file_whatever_its_first_row_is() {
        let folder = tempfile::tempdir().expect("a directory");
        let times = ["2026-05-17T10:00:00.000Z", "2026-05-18T10:00:00.000Z"];
        let paths = times.map(|time| write(folder.path(), &curve(time)).expect("written"));
        assert_eq!(paths[0], paths[1]);
        let files = fs::read_dir(paths[0].parent().expect("a folder")).expect("read").count();
        assert_eq!(files, 1);
    }

    /// By `RecordWriter` of TensorBoard 2.21, of the same event.
    const WRITTEN_BY_TENSORBOARD: &str = "2300000000000000b09f774309000000000000f83f10072a160a140a0d\
                                          747261696e696e672f6c6f7373150000003fc30960ba";
}
