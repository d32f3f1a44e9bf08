"""What a server learns about its clients' data: what it sees of them, and attacks on what it sees."""
