//! Vectors of metrics in the registry, which `DELETE /metrics` empties.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::core::{MetricVec, MetricVecBuilder};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The builder of a vector.
pub(crate) trait Built {
    type By: MetricVecBuilder;
}

impl<B: MetricVecBuilder> Built for MetricVec<B> {
    type By = B;
}

pub(crate) type CounterCells = Cells<<IntCounterVec as Built>::By>;
pub(crate) type HistogramCells = Cells<<HistogramVec as Built>::By>;

type Reset = Box<dyn Fn() + Send + Sync>;

/// The registry, and what a reset does.
#[derive(Default)]
pub(crate) struct Families {
    registry: Registry,
    resets: Mutex<Vec<Reset>>,
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}

impl Families {
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Registers a vector, which a reset empties.
    pub(crate) fn vector<B>(&self, vector: MetricVec<B>) -> Result<MetricVec<B>, prometheus::Error>
    where
        B: MetricVecBuilder + 'static,
    {
        self.registry.register(Box::new(vector.clone()))?;
        let own = vector.clone();
        self.on_reset(move || own.reset());
        Ok(vector)
    }

    /// Registers a vector whose metrics are found by their places.
    pub(crate) fn cells<B>(
        &self,
        vector: MetricVec<B>,
        count: usize,
    ) -> Result<Arc<Cells<B>>, prometheus::Error>
    where
        B: MetricVecBuilder + 'static,
    {
        let cells = Arc::new(Cells::new(self.vector(vector)?, count));
        let own = Arc::clone(&cells);
        self.on_reset(move || own.forget());
        Ok(cells)
    }

    pub(crate) fn on_reset(&self, reset: impl Fn() + Send + Sync + 'static) {
        self.resets.lock().push(Box::new(reset));
    }

    pub(crate) fn reset(&self) {
        for reset in &*self.resets.lock() {
            reset();
        }
    }
}

/// Metrics of a vector by their places: found once, then used without a look at their labels.
pub(crate) struct Cells<B: MetricVecBuilder> {
    vector: MetricVec<B>,
    found: ArcSwap<Vec<OnceLock<B::M>>>,
}

impl<B: MetricVecBuilder> fmt::Debug for Cells<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cells").finish_non_exhaustive()
    }
}

impl<B: MetricVecBuilder> Cells<B> {
    fn new(vector: MetricVec<B>, count: usize) -> Self {
        Self {
            vector,
            found: ArcSwap::from_pointee(empty::<B>(count)),
        }
    }

    /// Hands the metric at a place to `act`; its labels are read where nothing has used it yet.
    pub(crate) fn with(&self, at: usize, labels: &[&str], act: impl FnOnce(&B::M)) {
        if let Some(cell) = self.found.load().get(at) {
            act(cell.get_or_init(|| self.vector.with_label_values(labels)));
        }
    }

    fn forget(&self) {
        let count = self.found.load().len();
        self.found.store(Arc::new(empty::<B>(count)));
    }
}

fn empty<B: MetricVecBuilder>(count: usize) -> Vec<OnceLock<B::M>> {
    (0..count).map(|_| OnceLock::new()).collect()
}
