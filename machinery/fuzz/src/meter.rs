//! Memory and work of one attempt, counted where it is allocated: no clock is read, and the same input costs the same.
//!
//! Every test binary that uses this crate allocates through [`Meter`]. Bytes allocated in all stand for steps: a parser that
//! copies what it has read again and again shows there.

#![allow(
    unsafe_code,
    reason = "an allocator of tests, which hands everything to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static METER: Meter = Meter;

struct Meter;

/// Bytes that all threads hold together, whichever thread allocated and whichever frees them.
static HELD_BY_ALL: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Bytes that this thread holds, the most it held, all it ever allocated.
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static TOTAL: Cell<usize> = const { Cell::new(0) };
    /// Bytes that this thread holds, each block as large as the binary's allocator makes it.
    static BLOCKS: Cell<usize> = const { Cell::new(0) };
}

/// The size class of jemalloc's, which the binary allocates with: 8, multiples of 16 up to 128, then four in each doubling.
fn block(bytes: usize) -> usize {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => {
            let doubling = usize::BITS - 1 - (bytes - 1).leading_zeros();
            bytes.next_multiple_of(1 << (doubling - 2))
        }
    }
}

fn allocated(bytes: usize) {
    HELD_BY_ALL.fetch_add(bytes, Ordering::Relaxed);
    // A thread that ends allocates when its locals are gone already.
    let _ = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
    let _ = TOTAL.try_with(|total| total.set(total.get().wrapping_add(bytes)));
    let _ = BLOCKS.try_with(|blocks| blocks.set(blocks.get().wrapping_add(block(bytes))));
}

fn freed(bytes: usize) {
    HELD_BY_ALL.fetch_sub(bytes, Ordering::Relaxed);
    // What another thread allocated is freed here at times.
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(bytes)));
    let _ = BLOCKS.try_with(|blocks| blocks.set(blocks.get().saturating_sub(block(bytes))));
}

// SAFETY: every call goes to the system's allocator as it came; what is counted beside it allocates nothing.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: the pointer came from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        freed(layout.size());
        allocated(size);
        // SAFETY: the pointer came from `System`, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The cost of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The most bytes held at a time.
    pub peak: usize,
    /// Bytes allocated in all.
    pub total: usize,
}

/// Bytes that this thread holds: allocated and not freed yet.
pub fn held() -> usize {
    HELD.get()
}

/// Bytes that all threads of this process hold: allocated and not freed yet.
pub fn held_by_all() -> usize {
    HELD_BY_ALL.load(Ordering::Relaxed)
}

/// Bytes that this thread holds, each block as large as the binary's allocator makes it.
pub fn resident() -> usize {
    BLOCKS.get()
}

/// The cost of this on this thread.
pub fn cost<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let (held, total) = (HELD.get(), TOTAL.get());
    PEAK.set(held);
    let made = work();
    let cost = Cost {
        peak: PEAK.get().saturating_sub(held),
        total: TOTAL.get().wrapping_sub(total),
    };
    (made, cost)
}

/// Runs this and asserts that it holds no more than `bytes` for each byte of the input at a time, and allocates no more than
/// eight times that in all; a constant is given to each.
#[track_caller]
pub fn in_proportion<T>(input: &[u8], bytes: usize, work: impl FnOnce() -> T) -> T {
    const CONSTANT: usize = 64 << 10;
    let (made, cost) = cost(work);
    let most = bytes * input.len() + CONSTANT;
    assert!(cost.peak <= most, "{} bytes held, {most} are allowed", cost.peak);
    let most = 8 * most;
    assert!(
        cost.total <= most,
        "{} bytes allocated, {most} are allowed",
        cost.total
    );
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_what_was_held_and_what_was_allocated() {
        let (length, cost) = cost(|| {
            let one = vec![1_u8; 1_000];
            let two = vec![2_u8; 500];
            let both = one.len() + two.len();
            drop((one, two));
            both + Vec::<u8>::with_capacity(100).capacity()
        });
        assert_eq!(
            (length, cost),
            (
                1_600,
                Cost {
                    peak: 1_500,
                    total: 1_600
                }
            )
        );
    }

    #[test]
    fn all_threads_hold_what_one_allocated_and_another_frees() {
        const BYTES: usize = 64 << 20;
        let before = held_by_all();
        let made = std::thread::scope(|scope| scope.spawn(|| vec![1_u8; BYTES]).join().unwrap());
        assert!(held_by_all() >= before + BYTES / 2);
        drop(made);
        assert!(held_by_all() < before + BYTES / 2);
    }

    #[test]
    fn blocks_are_as_large_as_jemalloc_makes_them() {
        let classes = [
            (1, 8),
            (8, 8),
            (9, 16),
            (17, 32),
            (33, 48),
            (128, 128),
            (129, 160),
            (160, 160),
            (257, 320),
        ];
        for (bytes, expected) in classes {
            assert_eq!(block(bytes), expected, "{bytes}");
        }
        let before = resident();
        let one = vec![1_u8; 129];
        assert_eq!(resident() - before, 160);
        drop(one);
        assert_eq!(resident(), before);
    }

    #[test]
    #[should_panic(expected = "bytes allocated")]
    fn work_that_copies_again_and_again_is_found() {
        let input = [0_u8; 10_000];
        in_proportion(&input, 4, || {
            (0..100).for_each(|_| drop(std::hint::black_box(input.to_vec())))
        });
    }
}
