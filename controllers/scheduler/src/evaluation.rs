//! Answers of the single-node plugins for one pod shape, kept and brought up to date row by row.

use crate::attempt::beyond_few;
use crate::footprint::hashed_bytes;
use crate::framework::{Cycle, Filter, Normalize, PluginRegistration, PluginSet, Rejection, Scope, Score};
use crate::nodes::{NodeId, NodeTable};
use crate::pod::Shape;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Shapes kept at most; the least recently used goes first.
pub const MAX_SHAPES: usize = 128;
/// Bytes of a shape that is kept, as [`hashed_bytes`] counts: pods of charts have a tenth. Of larger ones the last is
/// kept alone, since what is kept stays when the pod is gone.
pub const MAX_SHAPE_BYTES: usize = 16 << 10;

/// Bytes compared in the time of one step.
const BYTES_A_STEP: usize = 1024;

/// A verdict in one byte pair: this, [`ABSENT`], or one more than an index into `failures`.
pub const FEASIBLE: u16 = 0;
/// No node in this row.
pub const ABSENT: u16 = u16::MAX;

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
    last_used: u64,
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

    /// Brings every changed row up to date.
    fn update(
        &mut self,
        plugins: &PluginSet,
        cycle: Cycle<'_>,
        allowed: Option<(&BTreeSet<Box<str>>, &[&'static str])>,
    ) {
        let pass = Pass::new(plugins, cycle);
        let steps_a_row = 1 + beyond_few(cycle.attempt.rated_items());
        let worked = |rows: usize| cycle.attempt.worked(rows.saturating_mul(steps_a_row));
        let changed = self.seen.and_then(|seen| cycle.nodes.changed_since(seen));
        match (changed, allowed) {
            (Some(changed), None) if changed.len() < cycle.nodes.rows() => {
                self.resize(&pass, cycle.nodes.rows());
                worked(changed.len());
                for node in changed {
                    self.evaluate(&pass, cycle.nodes, *node);
                }
            }
            (_, None) => {
                self.reset(&pass, cycle.nodes.rows());
                worked(cycle.nodes.rows());
                for node in 0..cycle.nodes.rows() {
                    self.evaluate(&pass, cycle.nodes, node);
                }
            }
            (_, Some((names, plugins))) => {
                worked(names.len());
                self.update_named(&pass, cycle.nodes, names, plugins);
            }
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
            self.evaluate(pass, nodes, id);
        }
    }

    fn reset(&mut self, pass: &Pass<'_>, rows: usize) {
        self.failures.clear();
        self.verdicts.clear();
        self.fixed.clear();
        self.columns = pass.normalized.iter().map(Pass::column).collect();
        self.resize(pass, rows);
    }

    fn resize(&mut self, _pass: &Pass<'_>, rows: usize) {
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
        u16::try_from(index + 1).unwrap_or(ABSENT - 1)
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
    by_shape: HashMap<Arc<Shape>, Evaluation>,
    /// The last one of a shape beyond [`MAX_SHAPE_BYTES`]: a change of its pod that leaves the shape costs little.
    large: Option<(Arc<Shape>, Evaluation)>,
    uses: u64,
}

impl Evaluations {
    /// The evaluation of the pod's shape, brought up to date.
    pub fn of(
        &mut self,
        plugins: &PluginSet,
        cycle: Cycle<'_>,
        allowed: Option<(&BTreeSet<Box<str>>, &[&'static str])>,
    ) -> &Evaluation {
        self.uses += 1;
        let shape = &cycle.pod.shape;
        let bytes = hashed_bytes(shape);
        if bytes > MAX_SHAPE_BYTES {
            // Measured and compared.
            cycle.attempt.worked(2 * bytes / BYTES_A_STEP);
            let known = self.large.take().filter(|(own, _)| own == shape);
            let (_, evaluation) = self
                .large
                .insert(known.unwrap_or_else(|| (Arc::clone(shape), Evaluation::default())));
            evaluation.update(plugins, cycle, allowed);
            return evaluation;
        }
        if self.by_shape.len() >= MAX_SHAPES && !self.by_shape.contains_key(&cycle.pod.shape) {
            self.drop_oldest();
        }
        let evaluation = self.by_shape.entry(Arc::clone(&cycle.pod.shape)).or_default();
        evaluation.last_used = self.uses;
        evaluation.update(plugins, cycle, allowed);
        evaluation
    }

    /// Shapes that are kept.
    #[cfg(test)]
    pub(crate) fn shapes(&self) -> usize {
        self.by_shape.len()
    }

    fn drop_oldest(&mut self) {
        let oldest = self.by_shape.iter().min_by_key(|(_, one)| one.last_used);
        if let Some(shape) = oldest.map(|(shape, _)| Arc::clone(shape)) {
            self.by_shape.remove(&shape);
        }
    }
}
