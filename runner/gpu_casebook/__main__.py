from gpu_casebook.cli import main

main()
