//! Answers of the single-node plugins for one pod shape, kept and brought up to date row by row, as attempts ask for them.

use crate::attempt::beyond_few;
use crate::footprint::hashed_bytes;
use crate::framework::{Cycle, Filter, Normalize, PluginRegistration, PluginSet, Rejection, Scope, Score};
use crate::nodes::{NodeId, NodeTable};
use crate::pod::Shape;
use std::cell::{Ref, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Shapes kept at most, in a large cluster and in a small one, between which their rows together are bounded: 40 bytes each.
const MIN_SHAPES: usize = 128;
const MAX_SHAPES: usize = 1024;
const MAX_CELLS: usize = 1 << 19;
/// A number whose multiples are far from each other.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bytes of a shape that is kept, as [`hashed_bytes`] counts: pods of charts have a tenth. Of larger ones the last is
/// kept alone, since what is kept stays when the pod is gone.
pub const MAX_SHAPE_BYTES: usize = 16 << 10;

/// Bytes compared in the time of one step.
const BYTES_A_STEP: usize = 1024;

/// A verdict in one byte pair: this, [`ABSENT`], [`STALE`], or one more than an index into `failures`.
pub const FEASIBLE: u16 = 0;
/// No node in this row.
pub const ABSENT: u16 = u16::MAX;
/// The row changed since it was looked at.
const STALE: u16 = ABSENT - 1;

/// One way to be rejected by one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub plugin: &'static str,
    pub rejection: Rejection,
}

/// Raw scores of one plugin that are normalised over the feasible nodes.
#[derive(Debug)]
pub struct Column {
    pub weight: i64,
    pub normalize: Normalize,
    pub raw: Vec<i64>,
}

/// Verdicts and scores by row.
#[derive(Debug, Default)]
pub struct Evaluation {
    seen: Option<u64>,
    pub verdicts: Vec<u16>,
    pub failures: Vec<Failure>,
    /// Weighted scores that need no normalisation, summed.
    pub fixed: Vec<i64>,
    pub columns: Vec<Column>,
}

impl Evaluation {
    /// The failure behind a verdict.
    pub fn failure(&self, verdict: u16) -> Option<&Failure> {
        self.failures.get(usize::from(verdict).checked_sub(1)?)
    }

    /// Marks every changed row.
    fn update(
        &mut self,
        pass: &Pass<'_>,
        cycle: Cycle<'_>,
        allowed: Option<(&BTreeSet<Box<str>>, &[&'static str])>,
    ) {
        let changed = self.seen.and_then(|seen| cycle.nodes.changed_since(seen));
        match (changed, allowed) {
            (Some(changed), None) if changed.len() < cycle.nodes.rows() => {
                self.resize(cycle.nodes.rows());
                for node in changed {
                    self.verdicts[*node] = STALE;
                }
            }
            (_, None) => {
                self.reset(pass, cycle.nodes.rows());
                self.verdicts.fill(STALE);
            }
            (_, Some((names, plugins))) => self.update_named(pass, cycle.nodes, names, plugins),
        }
        self.seen = Some(cycle.nodes.now());
    }

    /// The pod names its nodes: the others are rejected without being looked at.
    fn update_named(
        &mut self,
        pass: &Pass<'_>,
        nodes: &NodeTable,
        names: &BTreeSet<Box<str>>,
        plugins: &[&'static str],
    ) {
        self.reset(pass, nodes.rows());
        let words = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
        let other = self.verdict_of(
            plugins.first().copied().unwrap_or_default(),
            Rejection::unresolvable(words),
        );
        for (verdict, present) in self.verdicts.iter_mut().zip(&nodes.present) {
            *verdict = if *present { other } else { ABSENT };
        }
        for id in names.iter().filter_map(|name| nodes.id(name)) {
            self.verdicts[id] = STALE;
        }
    }

    fn reset(&mut self, pass: &Pass<'_>, rows: usize) {
        self.failures.clear();
        self.verdicts.clear();
        self.fixed.clear();
        self.columns = pass.normalized.iter().map(Pass::column).collect();
        self.resize(rows);
    }

    fn resize(&mut self, rows: usize) {
        self.verdicts.resize(rows, ABSENT);
        self.fixed.resize(rows, 0);
        for column in &mut self.columns {
            column.raw.resize(rows, 0);
        }
    }

    fn evaluate(&mut self, pass: &Pass<'_>, nodes: &NodeTable, node: NodeId) {
        if !nodes.present[node] {
            self.verdicts[node] = ABSENT;
            return;
        }
        if let Some((plugin, rejection)) = pass.reject(node) {
            self.verdicts[node] = self.verdict_of(plugin, rejection);
            return;
        }
        self.verdicts[node] = FEASIBLE;
        let rated = pass.fixed.iter().map(|(row, score)| {
            row.was_asked(1);
            row.weight * score.score(node)
        });
        self.fixed[node] = rated.sum();
        for (column, (row, score)) in self.columns.iter_mut().zip(&pass.normalized) {
            row.was_asked(1);
            column.raw[node] = score.score(node);
        }
    }

    fn verdict_of(&mut self, plugin: &'static str, rejection: Rejection) -> u16 {
        let known = self
            .failures
            .iter()
            .position(|own| own.plugin == plugin && own.rejection == rejection);
        let index = known.unwrap_or_else(|| {
            self.failures.push(Failure { plugin, rejection });
            self.failures.len() - 1
        });
        u16::try_from(index + 1).map_or(STALE - 1, |verdict| verdict.min(STALE - 1))
    }
}

/// The single-node plugins made ready for one pod.
struct Pass<'a> {
    filters: Vec<(&'a PluginRegistration, Box<dyn Filter + 'a>)>,
    fixed: Vec<(&'a PluginRegistration, Box<dyn Score + 'a>)>,
    normalized: Vec<(&'a PluginRegistration, Box<dyn Score + 'a>)>,
}

impl<'a> Pass<'a> {
    fn new(plugins: &'a PluginSet, cycle: Cycle<'a>) -> Self {
        let is_own = |row: &&PluginRegistration| row.plugin.scope() == Scope::Node;
        let mut pass = Self {
            filters: Vec::new(),
            fixed: Vec::new(),
            normalized: Vec::new(),
        };
        for row in plugins.filter.iter().filter(is_own) {
            if let Some(filter) = row.plugin.filter(cycle) {
                pass.filters.push((row, filter));
            }
        }
        for row in plugins.score.iter().filter(is_own) {
            let Some(score) = row.plugin.score(cycle) else {
                continue;
            };
            match row.plugin.normalize() {
                Normalize::Not => pass.fixed.push((row, score)),
                _ => pass.normalized.push((row, score)),
            }
        }
        pass
    }

    fn column((row, _): &(&'a PluginRegistration, Box<dyn Score + 'a>)) -> Column {
        Column {
            weight: row.weight,
            normalize: row.plugin.normalize(),
            raw: Vec::new(),
        }
    }

    fn reject(&self, node: NodeId) -> Option<(&'static str, Rejection)> {
        self.filters.iter().find_map(|(row, filter)| {
            row.was_asked(1);
            Some((row.name(), filter.check(node).err()?))
        })
    }
}

/// Evaluations by shape.
#[derive(Debug, Default)]
pub struct Evaluations {
    places: HashMap<Arc<Shape>, usize>,
    kept: Vec<(Arc<Shape>, Evaluation)>,
    /// The last one of a shape beyond [`MAX_SHAPE_BYTES`]: a change of its pod that leaves the shape costs little.
    large: Option<(Arc<Shape>, Evaluation)>,
    dropped: u64,
}

impl Evaluations {
    /// The evaluation of the pod's shape, which is brought up to date row by row.
    pub(crate) fn of<'a>(
        &'a mut self,
        plugins: &'a PluginSet,
        cycle: Cycle<'a>,
        allowed: Option<(&BTreeSet<Box<str>>, &[&'static str])>,
    ) -> Answers<'a> {
        let shape = &cycle.pod.shape;
        let bytes = hashed_bytes(shape);
        let evaluation = if bytes > MAX_SHAPE_BYTES {
            // Measured and compared.
            cycle.attempt.worked(2 * bytes / BYTES_A_STEP);
            let known = self.large.take().filter(|(own, _)| own == shape);
            let fresh = || (Arc::clone(shape), Evaluation::default());
            &mut self.large.insert(known.unwrap_or_else(fresh)).1
        } else {
            let place = self.place_of(shape, cycle.nodes.rows());
            &mut self.kept[place].1
        };
        Answers::new(evaluation, plugins, cycle, allowed)
    }

    /// Shapes that are kept.
    #[cfg(test)]
    pub(crate) fn shapes(&self) -> usize {
        self.kept.len()
    }

    fn place_of(&mut self, shape: &Arc<Shape>, rows: usize) -> usize {
        if let Some(place) = self.places.get(shape) {
            return *place;
        }
        while self.kept.len() >= most_shapes(rows) {
            self.drop_any();
        }
        self.places.insert(Arc::clone(shape), self.kept.len());
        self.kept.push((Arc::clone(shape), Evaluation::default()));
        self.kept.len() - 1
    }

    /// Drops one, whichever: of shapes that come in turn, more than are kept, the oldest is the one that comes next.
    fn drop_any(&mut self) {
        self.dropped += 1;
        let random = usize::try_from(self.dropped.wrapping_mul(SPREAD) >> 32).unwrap_or(0);
        let (shape, _) = self.kept.swap_remove(random % self.kept.len());
        let (place, last) = (self.places.remove(&shape), self.kept.len());
        if let Some(place) = place.filter(|place| *place < last) {
            self.places.insert(Arc::clone(&self.kept[place].0), place);
        }
    }
}

/// Shapes that are kept for so many rows.
fn most_shapes(rows: usize) -> usize {
    (MAX_CELLS / rows.max(1)).clamp(MIN_SHAPES, MAX_SHAPES)
}

/// The evaluation of a shape for one attempt. A row that changed is looked at when the attempt asks for it: a search that ends
/// after a share of the nodes costs that share, however many shapes there are.
pub(crate) struct Answers<'a> {
    pass: Pass<'a>,
    cycle: Cycle<'a>,
    steps_a_row: usize,
    evaluation: RefCell<&'a mut Evaluation>,
}

impl<'a> Answers<'a> {
    fn new(
        evaluation: &'a mut Evaluation,
        plugins: &'a PluginSet,
        cycle: Cycle<'a>,
        allowed: Option<(&BTreeSet<Box<str>>, &[&'static str])>,
    ) -> Self {
        let pass = Pass::new(plugins, cycle);
        evaluation.update(&pass, cycle, allowed);
        Self {
            pass,
            cycle,
            steps_a_row: 1 + beyond_few(cycle.attempt.rated_items()),
            evaluation: RefCell::new(evaluation),
        }
    }

    pub(crate) fn is_feasible(&self, node: NodeId) -> bool {
        let mut evaluation = self.evaluation.borrow_mut();
        self.look_at(&mut evaluation, node);
        evaluation.verdicts.get(node) == Some(&FEASIBLE)
    }

    /// The evaluation, with every row looked at.
    pub(crate) fn complete(&self) -> Ref<'_, Evaluation> {
        let mut evaluation = self.evaluation.borrow_mut();
        for node in 0..evaluation.verdicts.len() {
            self.look_at(&mut evaluation, node);
        }
        drop(evaluation);
        self.known()
    }

    /// The evaluation as far as rows were looked at.
    pub(crate) fn known(&self) -> Ref<'_, Evaluation> {
        Ref::map(self.evaluation.borrow(), |own| &**own)
    }

    fn look_at(&self, evaluation: &mut Evaluation, node: NodeId) {
        if evaluation.verdicts.get(node) == Some(&STALE) {
            self.cycle.attempt.worked(self.steps_a_row);
            evaluation.evaluate(&self.pass, self.cycle.nodes, node);
        }
    }
}
