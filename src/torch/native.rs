//! Calls into `native/attend.cpp`: attention on the processor over keys and values in blocks. The one
//! place where C++ of our own is called; everything that it relies on is checked here.
#![allow(unsafe_code)]

use tch::{Device, Kind, Tensor};

use super::paged::{BLOCK, Reads};

/// As in attend.cpp.
#[repr(C)]
struct Attention {
    queries: *const f32,
    query_line: i64,
    keys: *const f32,
    values: *const f32,
    spans: *const [i64; 4],
    span_count: i64,
    tables: *const i32,
    out: *mut f32,
    heads: i32,
    key_heads: i32,
    dim: i32,
    threads: i32,
}

/// As in attend.cpp.
#[repr(C)]
struct Writing {
    keys: *const f32,
    key_line: i64,
    values: *const f32,
    value_line: i64,
    key_blocks: *mut f32,
    value_blocks: *mut f32,
    rows: *const i64,
    slots: *const i64,
    count: i64,
    key_heads: i32,
    dim: i32,
}

unsafe extern "C" {
    fn palimpsest_attend_plain(attention: *const Attention);
    fn palimpsest_write_plain(writing: *const Writing);
    #[cfg(target_arch = "x86_64")]
    fn palimpsest_attend_avx2(attention: *const Attention);
    #[cfg(target_arch = "x86_64")]
    fn palimpsest_write_avx2(writing: *const Writing);
}

/// Whether these shapes can be computed here; otherwise libtorch's operators do it.
pub(super) fn can(device: Device, kind: Kind, group: i64, dim: i64) -> bool {
    device == Device::Cpu && kind == Kind::Float && dim % 8 == 0 && (1..=64).contains(&group)
}

fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Rows [rows, heads, dim] of f32 that may be a part of wider rows, and their distance.
fn rows_of(x: &Tensor) -> (Tensor, i64) {
    let size = x.size();
    let x = x.view([-1, size[size.len() - 2], size[size.len() - 1]]);
    let stride = x.stride();
    let x = if stride[2] == 1 && stride[1] == x.size()[2] {
        x
    } else {
        x.contiguous()
    };
    assert_eq!(
        x.kind(),
        Kind::Float,
        "attention on the processor is in f32"
    );
    assert_eq!(x.device(), Device::Cpu, "attention on the processor");
    let line = x.stride()[0];
    (x, line)
}

/// Blocks [blocks, key heads, ...] that hold 16 positions each.
fn check_blocks(blocks: &Tensor, key_heads: i64, dim: i64, needed: i64) {
    assert!(
        blocks.is_contiguous() && blocks.kind() == Kind::Float,
        "blocks are plain f32"
    );
    let entries = blocks.size()[0];
    assert_eq!(
        blocks.numel() as i64,
        entries * key_heads * dim * BLOCK as i64
    );
    assert!(needed <= entries, "block {needed} of {entries}");
}

/// Attention of `queries` [.., heads, dim] over blocks, as `reads` says; [1, rows, heads * dim].
pub(super) fn attend(queries: &Tensor, keys: &Tensor, values: &Tensor, reads: &Reads) -> Tensor {
    let (queries, query_line) = rows_of(queries);
    let size = queries.size();
    let (rows, heads, dim) = (size[0], size[1], size[2]);
    let key_heads = keys.size()[1];
    check_blocks(keys, key_heads, dim, reads.blocks());
    check_blocks(values, key_heads, dim, reads.blocks());
    assert!(
        can(Device::Cpu, Kind::Float, heads / key_heads, dim) && heads % key_heads == 0,
        "{heads} heads over {key_heads} key heads of width {dim}"
    );
    // Every row is read by one span, so every row of the result is written.
    assert_eq!(reads.rows(), rows, "spans must cover the rows");
    let out = Tensor::empty([1, rows, heads * dim], (Kind::Float, Device::Cpu));
    let attention = Attention {
        queries: queries.data_ptr().cast(),
        query_line,
        keys: keys.data_ptr().cast(),
        values: values.data_ptr().cast(),
        spans: reads.spans().as_ptr(),
        span_count: reads.spans().len() as i64,
        tables: reads.tables().as_ptr(),
        out: out.data_ptr().cast(),
        heads: heads as i32,
        key_heads: key_heads as i32,
        dim: dim as i32,
        threads: tch::get_num_threads(),
    };
    // SAFETY: the tensors live until the call ends and have the shapes checked above; `Reads` holds
    // only spans whose rows are below `rows()` and whose tables lie within `tables()` and name blocks
    // below `blocks()`.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            palimpsest_attend_avx2(&raw const attention);
            return out;
        }
        palimpsest_attend_plain(&raw const attention);
    }
    out
}

/// Writes rows of `keys` and `values` [.., key heads, dim] into blocks: row `rows[i]` to slot
/// `slots[i]`, which is block * 16 + the place in it.
pub(super) fn write(
    keys: &Tensor,
    values: &Tensor,
    key_blocks: &Tensor,
    value_blocks: &Tensor,
    rows: &[i64],
    slots: &[i64],
) {
    let ((keys, key_line), (values, value_line)) = (rows_of(keys), rows_of(values));
    let size = keys.size();
    let (count, key_heads, dim) = (size[0], size[1], size[2]);
    assert_eq!(values.size(), size, "as many values as keys");
    assert_eq!(rows.len(), slots.len(), "one slot for each row");
    let last = slots.iter().copied().max().unwrap_or(-1);
    check_blocks(key_blocks, key_heads, dim, last / BLOCK as i64 + 1);
    check_blocks(value_blocks, key_heads, dim, last / BLOCK as i64 + 1);
    assert!(
        rows.iter().all(|row| (0..count).contains(row)) && slots.iter().all(|&slot| slot >= 0),
        "rows and slots within bounds"
    );
    let writing = Writing {
        keys: keys.data_ptr().cast(),
        key_line,
        values: values.data_ptr().cast(),
        value_line,
        key_blocks: key_blocks.data_ptr().cast(),
        value_blocks: value_blocks.data_ptr().cast(),
        rows: rows.as_ptr(),
        slots: slots.as_ptr(),
        count: rows.len() as i64,
        key_heads: key_heads as i32,
        dim: dim as i32,
    };
    // SAFETY: the tensors live until the call ends and have the shapes checked above; rows and slots
    // are within them. Only this thread touches the blocks.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            palimpsest_write_avx2(&raw const writing);
            return;
        }
        palimpsest_write_plain(&raw const writing);
    }
}
