//! What a watch delivers.

/// A change of one kind's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch<T> {
    /// An object is new or changed.
    Upsert(T),
    /// An object is gone; its last state.
    Gone(T),
    /// A list, or a part of it: at the start, or after the watch broke.
    Listed(Part<T>),
}

/// A part of a list. After the last part, an object that no part has is gone. If a list breaks off, the first part of
/// another list follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    /// Its objects; of a list with at most one object, all of it.
    pub objects: Vec<T>,
    /// This is the first part.
    pub first: bool,
    /// This is the last part.
    pub last: bool,
}

impl<T> Watch<T> {
    /// A whole list as one part.
    pub fn list(objects: Vec<T>) -> Self {
        Self::Listed(Part { objects, first: true, last: true })
    }

    /// For a watch of one object: the object, `None` if it is gone.
    pub fn shown(self) -> Option<T> {
        match self {
            Self::Upsert(object) => Some(object),
            Self::Gone(_) => None,
            Self::Listed(part) => part.objects.into_iter().next(),
        }
    }
}

/// Gathers a list into parts. A full part is returned when the next object comes, so a list of at most one object is
/// one part.
#[derive(Clone, Debug)]
pub struct Parts<T> {
    most: usize,
    objects: Vec<T>,
    begun: bool,
}

impl<T> Parts<T> {
    /// Parts of at most `most` objects.
    pub fn of(most: usize) -> Self {
        Self { most, objects: Vec::new(), begun: false }
    }

    /// Begins a list, and discards an unfinished one.
    pub fn begin(&mut self) {
        *self = Self::of(self.most);
    }

    /// Adds an object of the list. Returns the part before it, if that is full.
    pub fn add(&mut self, object: T) -> Option<Part<T>> {
        let full = self.objects.len() >= self.most.max(1);
        let part = full.then(|| self.part(false));
        self.objects.push(object);
        part
    }

    /// Ends the list, and returns its last part.
    pub fn end(&mut self) -> Part<T> {
        let part = self.part(true);
        self.begin();
        part
    }

    fn part(&mut self, last: bool) -> Part<T> {
        let first = !std::mem::replace(&mut self.begun, true);
        Part { objects: std::mem::take(&mut self.objects), first, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(most: usize, objects: &[u8]) -> Vec<(Vec<u8>, bool, bool)> {
        let mut parts = Parts::of(most);
        let mut all: Vec<Part<u8>> = objects.iter().filter_map(|object| parts.add(*object)).collect();
        all.push(parts.end());
        all.into_iter().map(|part| (part.objects, part.first, part.last)).collect()
    }

    #[test]
    fn a_list_comes_in_parts_and_says_where_it_begins_and_ends() {
        let three = [(vec![1, 2], true, false), (vec![3, 4], false, false), (vec![5], false, true)];
        assert_eq!(parts(2, &[1, 2, 3, 4, 5]), three);
        assert_eq!(parts(2, &[1, 2]), [(vec![1, 2], true, true)]);
        assert_eq!(parts(1, &[1]), [(vec![1], true, true)], "one object is one part");
        assert_eq!(parts(1, &[]), [(vec![], true, true)]);
    }

    #[test]
    fn a_list_that_breaks_off_begins_anew() {
        let mut parts = Parts::of(1);
        assert_eq!(parts.add(1), None);
        assert!(parts.add(2).is_some_and(|part| part.first));
        parts.begin();
        parts.add(3);
        assert_eq!(parts.end(), Part { objects: vec![3], first: true, last: true });
        assert!(parts.end().first, "and the next list is another one");
    }
}
