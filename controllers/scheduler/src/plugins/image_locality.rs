//! Prefers nodes that already have the pod's images, the more so the larger and the more widespread they are.

use crate::framework::{Cycle, MAX_NODE_SCORE, Plugin, Score};
use crate::nodes::NodeId;

/// Sum of sizes below which a node gains nothing.
const MIN_THRESHOLD: i64 = 23 * 1024 * 1024;
/// Sum that one image can contribute at most.
const MAX_IMAGE_THRESHOLD: i64 = 1000 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    /// Scores by the number of nodes that have the image. That number changes slowly; a score kept for a row may lag
    /// behind it until the row changes.
    fn score<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        let nodes = cycle.nodes;
        let known: Vec<(&Box<str>, u32)> = (cycle.pod.shape.images.iter())
            .filter_map(|image| Some((image, *nodes.image_nodes.get(image)?)))
            .collect();
        if known.is_empty() {
            return None;
        }
        let count = i64::try_from(cycle.pod.shape.images.len()).unwrap_or(1);
        Some(Box::new(move |node: NodeId| {
            let own = &nodes.images[node];
            let sum = known
                .iter()
                .filter_map(|(image, count)| Some(scaled(*own.get(*image)?, *count, nodes.node_count())))
                .sum();
            rated(sum, count)
        }))
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "sizes are far below 2^52"
)]
fn scaled(size: i64, on_nodes: u32, all_nodes: usize) -> i64 {
    (size as f64 * (f64::from(on_nodes) / all_nodes as f64)) as i64
}

fn rated(sum: i64, images: i64) -> i64 {
    let max = MAX_IMAGE_THRESHOLD * images;
    MAX_NODE_SCORE * (sum.clamp(MIN_THRESHOLD, max) - MIN_THRESHOLD) / (max - MIN_THRESHOLD)
}
