//! TensorBoard event files, scalars only: TFRecord frames around a few protobuf fields.
//!
//! Cold start steps and RL steps are two axes, so they become two TensorBoard runs.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::append::AppendFile;
use super::{Metrics, RecordError};

/// The event files of a run.
pub(crate) struct TensorBoard {
    cold_start: EventFile,
    rl: EventFile,
}

impl TensorBoard {
    /// Gets ready for new event files under `tensorboard/`. After a resume the steps that are done again
    /// are purged: those after (cold start step, RL step).
    pub(crate) fn new(run: &Path, resumed: Option<(u32, u32)>) -> Self {
        let file = |name, resumed| EventFile {
            folder: run.join("tensorboard").join(name),
            resumed,
            file: None,
        };
        Self {
            cold_start: file("cold_start", resumed.map(|r| r.0)),
            rl: file("rl", resumed.map(|r| r.1)),
        }
    }

    /// Adds the numbers of a step.
    pub(crate) fn add(&mut self, step: u32, metrics: &Metrics) -> Result<(), RecordError> {
        for (file, cold_start) in [(&mut self.cold_start, true), (&mut self.rl, false)] {
            let mut of_axis = metrics
                .0
                .iter()
                .filter(|(name, _)| name.starts_with("cold_start/") == cold_start)
                .peekable();
            if of_axis.peek().is_some() {
                let values: Vec<u8> = of_axis
                    .flat_map(|(name, &value)| field_bytes(1, &scalar(name, value as f32)))
                    .collect();
                file.push(step, &field_bytes(5, &values))?;
            }
        }
        Ok(())
    }

    /// Hands everything to the system.
    pub(crate) fn flush(&mut self) -> Result<(), RecordError> {
        self.cold_start.flush()?;
        self.rl.flush()
    }
}

/// One event file; it comes into being with its first event.
struct EventFile {
    folder: PathBuf,
    resumed: Option<u32>,
    file: Option<AppendFile>,
}

impl EventFile {
    fn push(&mut self, step: u32, what: &[u8]) -> Result<(), RecordError> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open(&self.folder, self.resumed)?),
        };
        file.push(&frame(&event(step, what)))
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.file.as_mut().map_or(Ok(()), AppendFile::flush)
    }
}

/// Makes a file of a name that no other event file of the folder has; TensorBoard reads them in the
/// order of their names.
fn open(folder: &Path, resumed: Option<u32>) -> Result<AppendFile, RecordError> {
    std::fs::create_dir_all(folder).map_err(|e| RecordError::io("create", folder, e))?;
    let mut second = seconds() as u64;
    let path = loop {
        let path = folder.join(format!("events.out.tfevents.{second:010}.palimpsest"));
        if !path.exists() {
            break path;
        }
        second += 1;
    };
    let mut file = AppendFile::create(&path)?;
    file.push(&frame(&event(0, &field_bytes(3, b"brain.Event:2"))))?;
    if let Some(step) = resumed {
        // SessionLog { status: START }: everything from this step on is forgotten.
        file.push(&frame(&event(step + 1, &field_bytes(7, &[0x08, 0x01]))))?;
    }
    Ok(file)
}

fn seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}

/// Event { wall_time: double = 1, step: int64 = 2, what }.
fn event(step: u32, what: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x09];
    bytes.extend(seconds().to_le_bytes());
    bytes.push(0x10);
    bytes.extend(varint(step.into()));
    bytes.extend(what);
    bytes
}

/// Summary.Value { tag: string = 1, simple_value: float = 2 }.
fn scalar(tag: &str, value: f32) -> Vec<u8> {
    let mut bytes = field_bytes(1, tag.as_bytes());
    bytes.push(0x15);
    bytes.extend(value.to_le_bytes());
    bytes
}

/// A length-delimited field.
fn field_bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    bytes.extend(varint(content.len() as u64));
    bytes.extend(content);
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// TFRecord: length, its masked checksum, the data, its masked checksum.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(data);
    bytes.extend(masked(data).to_le_bytes());
    bytes
}

fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events in a file: (step, rest of the fields).
    fn parse(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_at(8);
            assert_eq!(rest[..4], masked(length).to_le_bytes());
            let n = u64::from_le_bytes(length.try_into().unwrap()) as usize;
            let (data, rest) = rest[4..].split_at(n);
            assert_eq!(rest[..4], masked(data).to_le_bytes());
            assert_eq!((data[0], data[9]), (0x09, 0x10));
            let (step, fields) = read_varint(&data[10..]);
            events.push((step, fields.to_vec()));
            bytes = &rest[4..];
        }
        events
    }

    fn read_varint(bytes: &[u8]) -> (u64, &[u8]) {
        let end = bytes.iter().position(|b| b & 0x80 == 0).unwrap();
        let value = bytes[..=end].iter().rev();
        let value = value.fold(0, |v, b| v << 7 | u64::from(b & 0x7f));
        (value, &bytes[end + 1..])
    }

    fn only_file(folder: &Path) -> Vec<u8> {
        let mut files = std::fs::read_dir(folder).unwrap();
        std::fs::read(files.next().unwrap().unwrap().path()).unwrap()
    }

    #[test]
    fn scalars_are_read_back_with_their_steps() {
        let run = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::new(run.path(), Some((300, 2)));
        let mut metrics = Metrics::default();
        metrics.set("actor/entropy", 0.5);
        board.add(3, &metrics).unwrap();
        board.flush().unwrap();
        let folder = run.path().join("tensorboard");
        assert!(!folder.join("cold_start").exists(), "it has no numbers yet");
        let events = parse(&only_file(&folder.join("rl")));
        assert_eq!(events[0], (0, field_bytes(3, b"brain.Event:2")));
        // Steps after the resumed one are purged.
        assert_eq!(events[1], (3, field_bytes(7, &[8, 1])));
        let value = [
            &[10, 13][..],
            b"actor/entropy",
            &[0x15],
            &0.5f32.to_le_bytes(),
        ]
        .concat();
        let summary = field_bytes(5, &field_bytes(1, &value));
        assert_eq!(events[2], (3, summary));
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn checksums_and_numbers_are_the_formats() {
        // CRC-32C of "123456789" is e3069283.
        let sum = 0xe306_9283u32.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(masked(b"123456789"), sum);
        assert_eq!(varint(300), [0xac, 0x02]);
    }
}
