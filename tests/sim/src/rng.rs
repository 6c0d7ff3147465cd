//! A small random number generator, whose sequence no update of a crate changes.

/// Random numbers of one seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of a seed. Sequences of neighbouring seeds share nothing: they are not shifted copies.
    pub fn new(seed: u64) -> Self {
        Self(mix(mix(seed ^ 0x7069_7473_746f_7021)))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A random element; None if `all` is empty.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        let n = u64::try_from(all.len()).unwrap();
        (n > 0).then(|| all[usize::try_from(self.below(n)).unwrap()].clone())
    }

    /// Removes and returns a random element.
    pub fn take<T>(&mut self, all: &mut Vec<T>) -> T {
        let n = u64::try_from(all.len()).unwrap();
        let i = usize::try_from(self.below(n)).unwrap();
        all.remove(i)
    }
}

/// The output function of `SplitMix64` (Steele, Lea, Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_nothing_in_common() {
        let first = |seed| -> Vec<u64> {
            let mut rng = Rng::new(seed);
            (0..50).map(|_| rng.next()).collect()
        };
        let (a, b) = (first(7), first(8));
        assert!(a.iter().all(|n| !b.contains(n)));
    }
}
