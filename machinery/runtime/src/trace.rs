//! Trace of a simulated run, folded into one number.

use parking_lot::Mutex;
use std::fmt::Write as _;

/// The running hash of everything that happened in a simulation, in order. FNV-1a: it need not resist an attacker.
#[derive(Debug)]
pub(crate) struct Trace {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    hash: u64,
    steps: u64,
    panics: Vec<String>,
}

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

impl Trace {
    pub(crate) fn new(seed: u64) -> Self {
        let trace = Self {
            state: Mutex::new(State {
                hash: OFFSET_BASIS,
                steps: 0,
                panics: Vec::new(),
            }),
        };
        trace.number(seed);
        trace
    }

    pub(crate) fn number(&self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.steps += 1;
        for byte in bytes {
            state.hash = (state.hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.state.lock().hash
    }

    pub(crate) fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    pub(crate) fn panicked(&self, task: &str, message: &str) {
        self.state.lock().panics.push(format!("{task}: {message}"));
    }

    /// One line per task that panicked, or nothing.
    pub(crate) fn panics(&self) -> Option<String> {
        let state = self.state.lock();
        let mut out = String::new();
        for line in &state.panics {
            writeln!(out, "  {line}").expect("writing to a string does not fail");
        }
        (!out.is_empty()).then_some(out)
    }
}
