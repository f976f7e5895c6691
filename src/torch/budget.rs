//! How much memory the keys and values of generation may take.

use tch::Device;

use super::paged::PoolShape;

/// On an accelerator, and where the machine does not say what is free.
const UNKNOWN: u64 = 8 << 30;

/// Blocks that fit into `bytes` over `layers` layers; 0 bytes: half of the free memory on the processor.
pub(super) fn cache_blocks(bytes: u64, shape: PoolShape, layers: i64) -> usize {
    let bytes = match (bytes, shape.device) {
        (0, Device::Cpu) => available_memory().map_or(UNKNOWN, |free| free / 2),
        (0, _) => UNKNOWN,
        (bytes, _) => bytes,
    };
    // The kernel numbers blocks with 31 bits.
    let blocks = bytes / (shape.block_bytes() * layers.unsigned_abs()).max(1);
    usize::try_from(blocks)
        .unwrap_or(usize::MAX)
        .min(i32::MAX as usize)
}

/// Bytes that the system says can be taken without swapping.
fn available_memory() -> Option<u64> {
    read_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn read_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_becomes_blocks_over_all_layers() {
        let shape = PoolShape {
            heads: 9,
            key_heads: 3,
            dim: 64,
            device: Device::Cpu,
        };
        // Keys and values of 16 positions, 3 heads of 64 floats, 30 layers.
        let block = 2 * 16 * 3 * 64 * 4 * 30;
        assert_eq!(cache_blocks(10 * block + 5, shape, 30), 10);
        assert_eq!(cache_blocks(5, shape, 30), 0);
        assert!(cache_blocks(0, shape, 30) > 0);
    }

    #[test]
    fn free_memory_is_read_as_the_kernel_writes_it() {
        let text = "MemTotal:       24616028 kB\nMemAvailable:   22057220 kB\n";
        assert_eq!(read_available(text), Some(22_057_220 * 1024));
        assert_eq!(read_available("MemTotal: 1 kB"), None);
    }
}
