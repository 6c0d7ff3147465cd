//! How many objects of a kind are open, and since when.

use std::collections::BTreeMap;

/// The open objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Open {
    count: usize,
    /// Number of objects to carry out, by creation time in seconds since 1970 by the API server's clock.
    created: BTreeMap<i64, usize>,
}

impl Open {
    /// Number of open objects.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Creation time of the oldest object to carry out, in seconds since 1970 by the API server's clock.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.created.keys().next().copied()
    }

    /// Adds an object. `created` is None for a dry run or a suspended request: it is open by the user's wish.
    pub(super) fn enter(&mut self, created: Option<i64>) {
        self.count = self.count.saturating_add(1);
        let Some(created) = created else { return };
        let same = self.created.entry(created).or_default();
        *same = same.saturating_add(1);
    }

    /// Removes an object that entered with `created`.
    pub(super) fn leave(&mut self, created: Option<i64>) {
        self.count = self.count.saturating_sub(1);
        let Some(created) = created else { return };
        if let Some(same) = self.created.get_mut(&created) {
            *same = same.saturating_sub(1);
            if *same == 0 {
                self.created.remove(&created);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_known_as_others_come_and_go() {
        let mut open = Open::default();
        assert_eq!((open.count(), open.oldest()), (0, None));
        for created in [Some(7), Some(3), None, Some(3), Some(9)] {
            open.enter(created);
        }
        assert_eq!((open.count(), open.oldest()), (5, Some(3)));
        for (gone, oldest) in [(3, Some(3)), (3, Some(7)), (9, Some(7)), (7, None)] {
            open.leave(Some(gone));
            assert_eq!(open.oldest(), oldest);
        }
        open.leave(None);
        assert_eq!(open, Open::default());
    }
}
