//! Numbers by row, in memory that grows with the rows that have one.

use crate::node_id::NodeId;

/// Entries below which a column is a list however many rows it has.
const FEW: usize = 8;

/// Numbers by row; a row without one has 0.
#[derive(Debug, Clone, Default)]
pub struct SparseColumn(Form);

#[derive(Debug, Clone, Default)]
enum Form {
    #[default]
    Empty,
    One(u32, u32),
    /// By row, in their order. Invariant: no number is 0.
    List(Vec<(u32, u32)>),
    /// As long as the last row that had a number, at most [`SPREAD`] times the list.
    Full(Box<Full>),
}

#[derive(Debug, Clone)]
struct Full {
    numbers: Vec<u32>,
    /// Numbers that are not 0.
    some: usize,
}

/// A full column with fewer numbers than this part of its rows becomes a list again.
const SPREAD: usize = 8;

/// The column of what is not counted.
pub(crate) static NOTHING: SparseColumn = SparseColumn(Form::Empty);

impl SparseColumn {
    /// The number of a row.
    pub fn get(&self, row: NodeId) -> u32 {
        match &self.0 {
            Form::Full(full) => full.numbers.get(row).copied().unwrap_or(0),
            Form::Empty => 0,
            Form::One(own, number) => {
                if *own as usize == row {
                    *number
                } else {
                    0
                }
            }
            Form::List(list) => match find(list, row) {
                Ok(place) => list[place].1,
                Err(_) => 0,
            },
        }
    }

    /// Rows with a number, and the numbers, in the order of the rows.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u32)> {
        let (list, full): (&[(u32, u32)], &[u32]) = match &self.0 {
            Form::Empty | Form::One(..) => (&[], &[]),
            Form::List(list) => (list, &[]),
            Form::Full(full) => (&[], &full.numbers),
        };
        let one = match &self.0 {
            Form::One(row, number) => Some((*row as usize, *number)),
            _ => None,
        };
        let full = full.iter().copied().enumerate().filter(|(_, number)| *number > 0);
        let list = list.iter().map(|(row, number)| (*row as usize, *number));
        one.into_iter().chain(list).chain(full)
    }

    /// Rows with a number.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Empty => 0,
            Form::One(..) => 1,
            Form::List(list) => list.len(),
            Form::Full(full) => full.some,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more for the row, or one less.
    pub fn bump(&mut self, row: NodeId, more: bool) {
        let number = self.get(row);
        self.set(
            row,
            if more {
                number.saturating_add(1)
            } else {
                number.saturating_sub(1)
            },
        );
    }

    pub fn set(&mut self, row: NodeId, number: u32) {
        let id = u32::try_from(row).unwrap_or(u32::MAX);
        match &mut self.0 {
            Form::Empty if number > 0 => self.0 = Form::One(id, number),
            Form::Empty => {}
            Form::One(own, old) if *own == id => {
                if number == 0 {
                    self.0 = Form::Empty;
                } else {
                    *old = number;
                }
            }
            Form::One(own, old) => {
                if number > 0 {
                    let mut both = vec![(*own, *old), (id, number)];
                    both.sort_unstable();
                    self.0 = Form::List(both);
                }
            }
            Form::List(list) => {
                set_in_list(list, row, id, number);
                self.fit_list();
            }
            Form::Full(full) => {
                full.set(row, number);
                self.fit_full();
            }
        }
    }

    fn fit_list(&mut self) {
        let Form::List(list) = &mut self.0 else { return };
        let rows = list.last().map_or(0, |(row, _)| *row as usize + 1);
        if list.is_empty() {
            self.0 = Form::Empty;
        } else if list.len() >= FEW && 2 * list.len() > rows {
            let mut numbers = vec![0; rows];
            for (row, number) in &*list {
                numbers[*row as usize] = *number;
            }
            let some = list.len();
            self.0 = Form::Full(Box::new(Full { numbers, some }));
        } else if list.capacity() > 4 * list.len().max(FEW) {
            list.shrink_to(2 * list.len());
        }
    }

    fn fit_full(&mut self) {
        let Form::Full(full) = &self.0 else { return };
        if full.some < FEW / 2 || full.some * SPREAD < full.numbers.len() {
            let pair = |(row, number): (usize, &u32)| (u32::try_from(row).unwrap_or(u32::MAX), *number);
            let all = full.numbers.iter().enumerate().filter(|(_, number)| **number > 0);
            self.0 = Form::List(all.map(pair).collect());
            self.fit_list();
        }
    }
}

impl Full {
    fn set(&mut self, row: NodeId, number: u32) {
        if self.numbers.len() <= row {
            if number == 0 {
                return;
            }
            self.numbers.resize(row + 1, 0);
        }
        let own = &mut self.numbers[row];
        self.some = self.some + usize::from(number > 0) - usize::from(*own > 0);
        *own = number;
    }
}

fn find(list: &[(u32, u32)], row: NodeId) -> Result<usize, usize> {
    list.binary_search_by(|(own, _)| (*own as usize).cmp(&row))
}

fn set_in_list(list: &mut Vec<(u32, u32)>, row: NodeId, id: u32, number: u32) {
    match (find(list, row), number) {
        (Ok(place), 0) => drop(list.remove(place)),
        (Ok(place), _) => list[place].1 = number,
        (Err(_), 0) => {}
        (Err(place), _) => list.insert(place, (id, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn sparse_column_answers_as_a_tree_does() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((seed >> 33) % below).unwrap()
        };
        for rows in [1, 3, 20, 500] {
            let (mut column, mut tree) = (SparseColumn::default(), BTreeMap::new());
            for round in 0..4_000 {
                let row = random(rows);
                // It fills, and then it empties.
                let number = u32::try_from(random(3)).unwrap() * u32::from(round % 2_000 < 1_000);
                column.set(row, number);
                tree.insert(row, number);
                tree.retain(|_, number| *number > 0);
                assert_eq!(column.get(row), number);
                assert_eq!(column.len(), tree.len());
            }
            assert!(column.iter().eq(tree.clone()), "{column:?} {tree:?}");
        }
    }

    #[test]
    fn sparse_column_takes_memory_for_what_it_has() {
        let (column, cost) = machinery_fuzz::cost(|| {
            let mut column = SparseColumn::default();
            column.bump(100_000, true);
            column.bump(50_000, true);
            column.bump(100_000, false);
            column
        });
        assert_eq!(column.iter().collect::<Vec<_>>(), [(50_000, 1)]);
        assert!(cost.peak < 100, "{cost:?}");
    }
}
