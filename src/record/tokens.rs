//! `tokens.bin`: the per-token columns of training rows, one block a row.
//!
//! All numbers are little-endian. The file begins with [`HEADER`]. A block is its payload's length
//! and CRC-32C (u32 each), then the payload: step u32, purpose u8, group u32, member u32, row u32,
//! number of tokens u32, then the columns in the order of [`TokenBlock`].

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RecordError;
use crate::trajectory::{Purpose, TokenId, TrajectoryId};

/// First bytes of the file: magic, then the version of the columns.
pub(crate) const HEADER: [u8; 12] = *b"PLMTOKEN\x03\x00\x00\x00";

/// The file of version 2, whose blocks have no column of entropies, and of version 1, which has none
/// of KL either. They are still read, and a run that began with one goes on: the length of a block
/// tells its version.
const OLD_HEADERS: [[u8; 12]; 2] = [*b"PLMTOKEN\x02\x00\x00\x00", *b"PLMTOKEN\x01\x00\x00\x00"];

/// Bytes of a payload before its columns.
const FIXED_BYTES: usize = 4 + 1 + 4 + 4 + 4 + 4;
/// Bytes of one token in all columns.
const TOKEN_BYTES: usize = 4 + 4 + 1 + 7 * 4;
/// The same in version 2.
const TOKEN_BYTES_2: usize = TOKEN_BYTES - 4;
/// The same in version 1.
const TOKEN_BYTES_1: usize = TOKEN_BYTES_2 - 4;

/// Where a block stands in `tokens.bin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRef {
    /// First byte of the block.
    pub offset: u64,
    /// Length of the block with its header, bytes.
    pub bytes: u32,
}

/// A training row with everything that the learner made of it. All columns have one entry a token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenBlock {
    /// Whose row.
    pub id: TrajectoryId,
    /// Number of the row inside the trajectory.
    pub row: u32,
    /// Prompt, turns and tool results.
    pub ids: Vec<TokenId>,
    /// The turn each id belongs to; prompt ids carry 0.
    pub turn: Vec<u32>,
    /// Response mask: true where the policy sampled the id.
    pub mask: Vec<bool>,
    /// Log-prob when it was sampled, 0 where the mask is false.
    pub sampled: Vec<f32>,
    /// Outcome part of the weight.
    pub outcome: Vec<f32>,
    /// Memory part of the weight.
    pub memory: Vec<f32>,
    /// The weight that the learner used.
    pub weight: Vec<f32>,
    /// Log-prob under the weights that its mini-batch was computed with, 0 where not trained.
    pub learner: Vec<f32>,
    /// What the KL in the reward changed in the weight.
    pub kl: Vec<f32>,
    /// Entropy of the policy under the weights of `learner`, nats, 0 where not trained; the last column.
    /// Empty if the block was written before version 3, which did not record it.
    pub entropy: Vec<f32>,
}

impl TokenBlock {
    /// The block as it stands in the file. Columns that are too short are an error of the caller.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, RecordError> {
        let n = self.ids.len();
        let floats = [
            &self.sampled,
            &self.outcome,
            &self.memory,
            &self.weight,
            &self.learner,
            &self.kl,
            &self.entropy,
        ];
        if self.turn.len() != n || self.mask.len() != n || floats.iter().any(|c| c.len() != n) {
            return Err(layout(format!(
                "row {} of {} has {n} ids, but a column of another length; every column has one entry a token",
                self.row, self.id
            )));
        }
        let count = u32::try_from(n).map_err(|e| layout(e.to_string()))?;
        let mut payload = Vec::with_capacity(FIXED_BYTES + n * TOKEN_BYTES);
        payload.extend(self.id.step.to_le_bytes());
        payload.push(u8::from(self.id.purpose == Purpose::Evaluate));
        for number in [self.id.group, self.id.member, self.row, count] {
            payload.extend(number.to_le_bytes());
        }
        payload.extend(self.ids.iter().flat_map(|v| v.to_le_bytes()));
        payload.extend(self.turn.iter().flat_map(|v| v.to_le_bytes()));
        payload.extend(self.mask.iter().map(|&v| u8::from(v)));
        for column in floats {
            payload.extend(column.iter().flat_map(|v| v.to_le_bytes()));
        }
        let length = u32::try_from(payload.len()).map_err(|e| layout(e.to_string()))?;
        let mut block = Vec::with_capacity(8 + payload.len());
        block.extend(length.to_le_bytes());
        block.extend(crc32c::crc32c(&payload).to_le_bytes());
        block.extend(payload);
        Ok(block)
    }

    /// Reads a block back; says what is wrong with it otherwise.
    pub(crate) fn from_bytes(block: &[u8]) -> Result<Self, String> {
        let mut outer = Cursor(block);
        let length = outer.u32()? as usize;
        let sum = outer.u32()?;
        let payload = outer.take(length)?;
        if !outer.0.is_empty() {
            return Err(format!("{} bytes too many", outer.0.len()));
        }
        let found = crc32c::crc32c(payload);
        if found != sum {
            return Err(format!(
                "the checksum is {found:08x}, the header says {sum:08x}"
            ));
        }
        let mut c = Cursor(payload);
        let step = c.u32()?;
        let purpose = if c.take(1)? == [0] {
            Purpose::Train
        } else {
            Purpose::Evaluate
        };
        let (group, member, row) = (c.u32()?, c.u32()?, c.u32()?);
        let n = c.u32()? as usize;
        let length = c.0.len();
        let is = |bytes: usize| n > 0 && length == n.saturating_mul(bytes);
        let made = Self {
            id: TrajectoryId {
                step,
                purpose,
                group,
                member,
            },
            row,
            ids: c.column(n, u32::from_le_bytes)?,
            turn: c.column(n, u32::from_le_bytes)?,
            mask: c.take(n)?.iter().map(|&b| b != 0).collect(),
            sampled: c.column(n, f32::from_le_bytes)?,
            outcome: c.column(n, f32::from_le_bytes)?,
            memory: c.column(n, f32::from_le_bytes)?,
            weight: c.column(n, f32::from_le_bytes)?,
            learner: c.column(n, f32::from_le_bytes)?,
            kl: if is(TOKEN_BYTES_1) {
                vec![0.0; n]
            } else {
                c.column(n, f32::from_le_bytes)?
            },
            entropy: if is(TOKEN_BYTES_1) || is(TOKEN_BYTES_2) {
                Vec::new()
            } else {
                c.column(n, f32::from_le_bytes)?
            },
        };
        if c.0.is_empty() {
            Ok(made)
        } else {
            Err(format!("{} bytes stand after the columns", c.0.len()))
        }
    }
}

fn layout(why: String) -> RecordError {
    RecordError::Layout {
        what: "a token block",
        why,
    }
}

/// What is left to read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self
            .0
            .split_at_checked(bytes)
            .ok_or_else(|| format!("{bytes} bytes are needed, {} are left", self.0.len()))?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(self
            .take(4)?
            .first_chunk()
            .map_or(0, |b| u32::from_le_bytes(*b)))
    }

    fn column<T>(&mut self, n: usize, read: fn([u8; 4]) -> T) -> Result<Vec<T>, String> {
        let bytes = self.take(n.saturating_mul(4))?;
        Ok(bytes.as_chunks().0.iter().map(|b| read(*b)).collect())
    }
}

/// Reads blocks of a `tokens.bin`.
pub struct TokenReader {
    path: PathBuf,
    file: File,
}

impl TokenReader {
    /// Opens `tokens.bin` of a run folder.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::Damaged`] if it does not begin as it should.
    pub fn open(run: &Path) -> Result<Self, RecordError> {
        let path = run.join("tokens.bin");
        let refused = |e| RecordError::io("read", &path, e);
        let mut file = File::open(&path).map_err(refused)?;
        let mut head = Vec::new();
        file.by_ref()
            .take(HEADER.len() as u64)
            .read_to_end(&mut head)
            .map_err(refused)?;
        if head != HEADER && !OLD_HEADERS.iter().any(|old| head == old) {
            return Err(RecordError::Damaged {
                place: "at its beginning".into(),
                why: "it does not begin with the mark of token columns, version 1 to 3; a later version needs a later palimpsest".into(),
                path,
            });
        }
        Ok(Self { path, file })
    }

    /// Reads one block.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::Damaged`] if the block is cut off, or its checksum is
    /// wrong.
    pub fn read(&mut self, at: TokenRef) -> Result<TokenBlock, RecordError> {
        let mut block = Vec::new();
        self.file
            .seek(SeekFrom::Start(at.offset))
            .and_then(|_| {
                self.file
                    .by_ref()
                    .take(at.bytes.into())
                    .read_to_end(&mut block)
            })
            .map_err(|e| RecordError::io("read", &self.path, e))?;
        TokenBlock::from_bytes(&block).map_err(|why| RecordError::Damaged {
            path: self.path.clone(),
            place: format!("at byte {}", at.offset),
            why,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> TokenBlock {
        let column = |from: f32| vec![from, from + 0.5, from + 0.25];
        TokenBlock {
            id: TrajectoryId::default(),
            row: 2,
            ids: vec![7, 8, 9],
            turn: vec![0, 0, 1],
            mask: vec![false, true, true],
            sampled: column(1.0),
            outcome: column(2.0),
            memory: column(3.0),
            weight: column(4.0),
            learner: column(5.0),
            kl: column(6.0),
            entropy: column(7.0),
        }
    }

    /// The block as an old version wrote it: without its last columns.
    fn old_bytes(block: &TokenBlock, version: usize) -> Vec<u8> {
        let bytes = block.to_bytes().unwrap();
        let payload = &bytes[8..bytes.len() - (3 - version) * 4 * block.ids.len()];
        let length = (payload.len() as u32).to_le_bytes();
        let sum = crc32c::crc32c(payload).to_le_bytes();
        [&length[..], &sum, payload].concat()
    }

    #[test]
    fn a_block_is_read_as_it_was_written_and_an_old_one_lacks_what_it_did_not_record() {
        let block = block();
        let bytes = block.to_bytes().unwrap();
        assert_eq!(TokenBlock::from_bytes(&bytes).as_ref(), Ok(&block));
        let mut old = TokenBlock {
            entropy: Vec::new(),
            ..block.clone()
        };
        assert_eq!(
            TokenBlock::from_bytes(&old_bytes(&block, 2)),
            Ok(old.clone())
        );
        old.kl = vec![0.0; 3];
        assert_eq!(TokenBlock::from_bytes(&old_bytes(&block, 1)), Ok(old));
    }

    #[test]
    fn files_of_all_versions_are_opened_and_a_later_one_is_refused_by_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.bin");
        let block = block();
        // A run of an old version that was resumed: an old block, then a new one.
        for (version, header) in [2, 1].into_iter().zip(OLD_HEADERS) {
            let (old, new) = (old_bytes(&block, version), block.to_bytes().unwrap());
            std::fs::write(&path, [&header[..], &old, &new].concat()).unwrap();
            let mut reader = TokenReader::open(folder.path()).unwrap();
            let mut offset = header.len() as u64;
            for (bytes, entropy) in [(&old, Vec::new()), (&new, block.entropy.clone())] {
                let bytes = bytes.len() as u32;
                let read = reader.read(TokenRef { offset, bytes }).unwrap();
                assert_eq!((read.entropy, &read.learner), (entropy, &block.learner));
                offset += u64::from(bytes);
            }
        }
        std::fs::write(&path, b"PLMTOKEN\x04\x00\x00\x00").unwrap();
        let refused = TokenReader::open(folder.path()).err().unwrap().to_string();
        assert!(refused.contains("version 1 to 3"), "{refused}");
    }
}
