"""The laws that every algorithm here is tested against, for an algorithm of your own."""
