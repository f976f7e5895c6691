//! A matrix of a block, with the adapters (LoRA) that may stand beside it.

use tch::Tensor;

/// A matrix [out, in] with its bias. Several matrices of a Hugging Face file may be fused in it, one
/// below the other.
pub(super) struct Linear {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    pub adapter: Option<Adapter>,
}

/// Low-rank matrices beside the matrices that are fused in one: y += scale * up(down(x)).
pub(super) struct Adapter {
    /// [adapted matrices * rank, in]; PEFT's `lora_A`, one below the other.
    pub down: Tensor,
    /// [rows of the adapted matrices, rank]; PEFT's `lora_B`, one below the other.
    pub up: Tensor,
    /// Of every fused matrix, its rows and whether it is adapted.
    pub parts: Vec<(i64, bool)>,
    pub rank: i64,
    /// alpha / rank.
    pub scale: f64,
}

impl Linear {
    /// x [.., in] becomes [.., out].
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let y = x.linear(&self.weight, self.bias.as_ref());
        match &self.adapter {
            Some(adapter) => y + adapter.added(x),
            None => y,
        }
    }

    /// The same with every tensor put through `of`, and the adapter through `adapt`.
    pub fn map(
        &self,
        of: &mut impl FnMut(&Tensor) -> Tensor,
        adapt: &mut impl FnMut(&Adapter) -> Option<Adapter>,
    ) -> Self {
        Self {
            weight: of(&self.weight),
            bias: self.bias.as_ref().map(&mut *of),
            adapter: self.adapter.as_ref().and_then(adapt),
        }
    }

    /// The matrix that does alone what it does with its adapter.
    pub fn merged_weight(&self) -> Tensor {
        let Some(adapter) = &self.adapter else {
            return self.weight.shallow_clone();
        };
        let (mut downs, mut ups) = adapter.pairs();
        let rows: Vec<i64> = adapter.parts.iter().map(|part| part.0).collect();
        let weights = self.weight.split_with_sizes(&rows, 0).into_iter();
        let parts: Vec<Tensor> = weights
            .zip(&adapter.parts)
            .map(
                |(weight, (_, adapted))| match (*adapted).then(|| (downs.next(), ups.next())) {
                    Some((Some(down), Some(up))) => weight + up.mm(&down) * adapter.scale,
                    _ => weight,
                },
            )
            .collect();
        Tensor::cat(&parts, 0)
    }
}

impl Adapter {
    /// The small matrices of each adapted matrix.
    pub fn pairs(&self) -> (impl Iterator<Item = Tensor>, impl Iterator<Item = Tensor>) {
        let adapted = self.parts.iter().filter(|part| part.1);
        let rows: Vec<i64> = adapted.map(|part| part.0).collect();
        (
            self.down.split(self.rank, 0).into_iter(),
            self.up.split_with_sizes(&rows, 0).into_iter(),
        )
    }

    /// The same with both tensors put through `of`.
    pub fn map(&self, mut of: impl FnMut(&Tensor) -> Tensor) -> Self {
        Self {
            down: of(&self.down),
            up: of(&self.up),
            parts: self.parts.clone(),
            ..*self
        }
    }

    fn added(&self, x: &Tensor) -> Tensor {
        let small = x.linear(&self.down, None::<&Tensor>) * self.scale;
        let (_, mut ups) = self.pairs();
        let mut smalls = small.split(self.rank, -1).into_iter();
        let parts: Vec<Tensor> = self
            .parts
            .iter()
            .map(
                |&(rows, adapted)| match adapted.then(|| (smalls.next(), ups.next())) {
                    Some((Some(small), Some(up))) => small.linear(&up, None::<&Tensor>),
                    _ => {
                        let mut size = x.size();
                        size.pop();
                        size.push(rows);
                        Tensor::zeros(size, (x.kind(), x.device()))
                    }
                },
            )
            .collect();
        match &parts[..] {
            [one] => one.shallow_clone(),
            several => Tensor::cat(several, -1),
        }
    }
}
