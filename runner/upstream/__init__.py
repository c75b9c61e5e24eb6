"""What reaches the upstream project, and what comes back from it: reports, bisections, watches."""
