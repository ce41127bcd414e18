//! Durations of extension points and plugins in one attempt, taken where they are measured.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Time since some moment.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Upstream's extension points, as labels have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionPoint {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

impl ExtensionPoint {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreEnqueue => "PreEnqueue",
            Self::QueueSort => "QueueSort",
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::Reserve => "Reserve",
            Self::Permit => "Permit",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
            Self::PostBind => "PostBind",
        }
    }
}

/// Status codes of upstream's framework.
pub const SUCCESS: &str = "Success";
pub const ERROR: &str = "Error";
pub const UNSCHEDULABLE: &str = "Unschedulable";
pub const UNRESOLVABLE: &str = "UnschedulableAndUnresolvable";

/// A run of all plugins of an extension point, or of one plugin there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub point: ExtensionPoint,
    /// `None` for all of them together.
    pub plugin: Option<&'static str>,
    pub status: &'static str,
    pub took: Duration,
}

/// The runs of an attempt.
pub struct Meter {
    clock: Clock,
    /// Single plugins are measured as well.
    sampled: bool,
    runs: RefCell<Vec<Run>>,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("runs", &self.runs).finish()
    }
}

impl Meter {
    pub fn new(clock: Clock, sampled: bool) -> Self {
        Self {
            clock,
            sampled,
            runs: RefCell::default(),
        }
    }

    pub fn now(&self) -> Duration {
        (self.clock)()
    }

    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Keeps a run that began at this moment and ends now.
    pub fn ran(
        &self,
        point: ExtensionPoint,
        plugin: Option<&'static str>,
        status: &'static str,
        since: Duration,
    ) {
        let took = self.now().saturating_sub(since);
        self.runs.borrow_mut().push(Run {
            point,
            plugin,
            status,
            took,
        });
    }

    /// Takes the runs: others are kept from now on.
    pub fn take_runs(&self) -> Vec<Run> {
        self.runs.take()
    }
}
