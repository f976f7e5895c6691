//! Attention by libtorch's operators.

use tch::Tensor;

/// Attention of q [batch, n, heads, dim] over k, v [batch, time, kv heads, dim]; gives
/// [batch, n, heads * dim]. `mask` is added to the scores, [batch or 1, 1, n, time]; without one,
/// attention is causal.
pub(super) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Tensor {
    let size = q.size();
    let (batch, n, heads, dim) = (size[0], size[1], size[2], size[3]);
    let kv = k.size()[2];
    let group = heads / kv;
    let (k, v) = (k.transpose(1, 2), v.transpose(1, 2));
    if n == 1 && group > 1 {
        // The query heads that share a key head become rows of one query: nothing is repeated.
        let q = q.reshape([batch, kv, group, dim]);
        return Tensor::scaled_dot_product_attention(&q, &k, &v, mask, 0.0, false, None, false)
            .reshape([batch, 1, heads * dim]);
    }
    let repeated = |x: Tensor| {
        if group == 1 {
            return x;
        }
        let time = x.size()[2];
        x.unsqueeze(2)
            .expand([batch, kv, group, time, dim], false)
            .reshape([batch, heads, time, dim])
    };
    Tensor::scaled_dot_product_attention(
        &q.transpose(1, 2),
        &repeated(k),
        &repeated(v),
        mask,
        0.0,
        mask.is_none() && n > 1,
        None,
        false,
    )
    .transpose(1, 2)
    .reshape([batch, n, heads * dim])
}

/// Causal attention of rows that stand one after the other in q, k, v [1, time, heads, dim]; `lengths`
/// are theirs. Gives [1, time, heads * dim]. Neighbours of one length are computed at once.
pub(super) fn attention_of_rows(q: &Tensor, k: &Tensor, v: &Tensor, lengths: &[i64]) -> Tensor {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for &length in lengths {
        match runs.last_mut() {
            Some((count, same)) if *same == length => *count += 1,
            _ => runs.push((1, length)),
        }
    }
    let sizes: Vec<i64> = runs.iter().map(|(count, length)| count * length).collect();
    // Split, not narrowed: one backward step puts the parts together again.
    let parts = |x: &Tensor| -> Vec<Tensor> {
        let tail = &x.size()[2..];
        x.split_with_sizes(&sizes, 1)
            .iter()
            .zip(&runs)
            .map(|(part, (count, length))| {
                part.view([&[*count, *length], tail].concat().as_slice())
            })
            .collect()
    };
    let rows: Vec<Tensor> = parts(q)
        .iter()
        .zip(parts(k).iter().zip(&parts(v)))
        .zip(&sizes)
        .map(|((q, (k, v)), size)| attention(q, k, v, None).view([1, *size, -1]))
        .collect();
    match &rows[..] {
        [one] => one.shallow_clone(),
        several => Tensor::cat(several, 1),
    }
}
