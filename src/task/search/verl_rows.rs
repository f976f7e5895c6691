//! verl's data sets: Parquet files, a question a row.

use std::fs::File;
use std::path::Path;

use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Map, Number, Value};

use super::question::SearchQuestion;
use super::row::{Fault, Make, bad_row};
use crate::task::TaskError;

/// Reads every row of a file.
pub(super) fn read(path: &Path, make: Make) -> Result<Vec<SearchQuestion>, TaskError> {
    let file = File::open(path).map_err(|source| TaskError::UnreadableQuestions {
        path: path.to_owned(),
        source,
    })?;
    let broken = |error: parquet::errors::ParquetError| TaskError::BadQuestions {
        path: path.to_owned(),
        problem: format!("it is no Parquet file that can be read ({error})"),
        remedy: "copy it again, or write it again",
    };
    let reader = SerializedFileReader::new(file).map_err(broken)?;
    if let Some(other) = unknown_compression(&reader) {
        return Err(TaskError::BadQuestions {
            path: path.to_owned(),
            problem: format!("it is compressed with {other}, which is not read here"),
            remedy: "write it with snappy, gzip, lz4 or none, as pandas.read_parquet(FILE).to_parquet(NEW, compression=\"snappy\") does",
        });
    }
    let rows = reader.get_row_iter(None).map_err(broken)?;
    let mut questions = Vec::new();
    for (row, number) in rows.zip(1..) {
        let fault = |(problem, remedy): Fault| bad_row(path, "row", number, problem, remedy);
        let row = json_of_row(&row.map_err(broken)?);
        questions.push(make(row, number).map_err(fault)?);
    }
    Ok(questions)
}

/// The first compression in a file that this program was built without.
fn unknown_compression(reader: &SerializedFileReader<File>) -> Option<String> {
    reader
        .metadata()
        .row_groups()
        .iter()
        .flat_map(RowGroupMetaData::columns)
        .map(ColumnChunkMetaData::compression)
        .find_map(|compression| match compression {
            Compression::ZSTD(_) => Some("zstd".to_owned()),
            Compression::BROTLI(_) => Some("brotli".to_owned()),
            Compression::LZO => Some("lzo".to_owned()),
            _ => None,
        })
}

fn json_of_row(row: &Row) -> Value {
    let fields: Map<String, Value> = row
        .get_column_iter()
        .map(|(name, field)| (name.clone(), json_of(field)))
        .collect();
    Value::Object(fields)
}

/// Texts, numbers, lists and groups; what no question is made of (times, bytes) is null.
fn json_of(field: &Field) -> Value {
    let float = |number: f64| Number::from_f64(number).map_or(Value::Null, Value::Number);
    match field {
        Field::Bool(on) => Value::Bool(*on),
        Field::Byte(number) => Value::from(*number),
        Field::Short(number) => Value::from(*number),
        Field::Int(number) => Value::from(*number),
        Field::Long(number) => Value::from(*number),
        Field::UByte(number) => Value::from(*number),
        Field::UShort(number) => Value::from(*number),
        Field::UInt(number) => Value::from(*number),
        Field::ULong(number) => Value::from(*number),
        Field::Float(number) => float(f64::from(*number)),
        Field::Double(number) => float(*number),
        Field::Str(text) => Value::String(text.clone()),
        Field::Group(row) => json_of_row(row),
        Field::ListInternal(list) => list.elements().iter().map(json_of).collect(),
        _ => Value::Null,
    }
}
